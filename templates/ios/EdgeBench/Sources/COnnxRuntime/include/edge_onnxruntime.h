// Gives Swift the C API of ONNX Runtime. The framework carries headers but no module map.
#ifndef EDGE_ONNXRUNTIME_H
#define EDGE_ONNXRUNTIME_H

#if __has_include(<onnxruntime/onnxruntime_c_api.h>)
#include <onnxruntime/onnxruntime_c_api.h>  // inside onnxruntime.framework
#else
#include <onnxruntime_c_api.h>
#endif

#endif
