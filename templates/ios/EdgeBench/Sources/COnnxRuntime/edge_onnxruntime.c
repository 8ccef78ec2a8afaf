// A C target needs a source file; all that is wanted of this one is its header.
#include "edge_onnxruntime.h"
