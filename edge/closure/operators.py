"""What ONNX Runtime knows of operators: names, versions, and types that reduced builds track.

Plain tables and one lookup type; importing this module costs nothing. The tables come from the
wheels of ONNX Runtime 1.29 to 1.32 (``get_all_operator_schema`` and
``onnxruntime.tools.ort_format_model.operator_type_usage_processors``); the tests hold them
against the installed wheel.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

ONNX = "ai.onnx"
ML = "ai.onnx.ml"
MICROSOFT = "com.microsoft"
NCHWC = "com.microsoft.nchwc"
NHWC = "com.ms.internal.nhwc"

# Domains that have kernels in the prebuilt CPU runtimes (wheels, AAR, xcframework, wasm).
PREBUILT_DOMAINS = (ONNX, ML, MICROSOFT, NCHWC)

# An open-ended kernel registration's last opset (INT_MAX in the runtime).
OPEN = 2**31 - 1

Range = tuple[int, int]
Ranges = Mapping[tuple[str, str], tuple[Range, ...]]

# C++ names as the configuration grammar wants them, by the element type's number (the same in
# ONNX and ORT format). Complex and 4-bit types have no name there.
CPP_TYPES = {
    1: "float", 2: "uint8_t", 3: "int8_t", 4: "uint16_t", 5: "int16_t", 6: "int32_t",
    7: "int64_t", 8: "std::string", 9: "bool", 10: "MLFloat16", 11: "double", 12: "uint32_t",
    13: "uint64_t", 16: "BFloat16", 17: "Float8E4M3FN", 18: "Float8E4M3FNUZ",
    19: "Float8E5M2", 20: "Float8E5M2FNUZ",
}  # fmt: skip
FOUR_BIT = {21: "uint4", 22: "int4"}


def serves(registration: Range, since: int) -> bool:
    """Whether a kernel registered for [start, end] runs nodes of the version ``since``.

    An open-ended kernel runs its first version only: it cannot know of later ones.
    """
    start, end = registration
    return start == since or start < since <= end != OPEN


@dataclass(frozen=True)
class Tracked:
    """The places whose types a reduced build keeps or drops kernels by.

    ``always``: types of input 0 that are kept whatever the configuration says. ``custom``: the
    three inputs go together as one triple (OneHot).
    """

    inputs: tuple[int, ...] = (0,)
    outputs: tuple[int, ...] = ()
    always: frozenset[str] = frozenset()
    custom: bool = False


def _tracked() -> dict[tuple[str, str], Tracked]:
    names = """
        Abs ArgMax ArgMin AveragePool BatchNormalization BitShift Ceil Clip Conv CumSum Exp
        Expand Floor Gemm IsNaN Log LogSoftmax LpNormalization MatMul Max MaxPool Mean Min
        NonZero Pad QLinearConv QLinearMatMul Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum
        ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
        Relu Resize ReverseSequence RoiAlign Round Scatter ScatterElements ScatterND Shrink
        Sigmoid Sign Sin Softmax Split SplitToSequence Sqrt Sum Tanh TopK Transpose Unique
    """
    # Used for shapes and indices, hence never without integers.
    shapes = Tracked(always=frozenset({"int32_t", "int64_t"}))
    output = Tracked(inputs=(), outputs=(0,))
    both = Tracked(inputs=(0, 1))
    table = {(ONNX, name): Tracked() for name in names.split()}
    table |= {(MICROSOFT, name): Tracked() for name in ("QLinearAdd", "QLinearConv", "QLinearMul")}
    for name in ("Add", "Concat", "Div", "Equal", "Greater", "Less", "Mul", "Neg", "Sub"):
        table[ONNX, name] = shapes
    for name in ("Gather", "GatherElements", "Pow", "Slice"):
        table[ONNX, name] = both
    for name in (
        "ConstantOfShape", "DynamicQuantizeLinear", "Multinomial", "QuantizeLinear",
        "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
    ):  # fmt: skip
        table[ONNX, name] = output
    table[ONNX, "Cast"] = Tracked(outputs=(0,))
    table[ONNX, "Where"] = Tracked(inputs=(1,))
    table[ONNX, "DequantizeLinear"] = Tracked(always=frozenset({"int8_t", "uint8_t", "int32_t"}))
    table[ONNX, "OneHot"] = Tracked(inputs=(), custom=True)
    table[MICROSOFT, "GatherPacked"] = Tracked(inputs=(0, 1), outputs=(0,))
    return table


TRACKED = _tracked()

# ONNX operators that only the runtime knows, or knows at more versions than ONNX has.
_RUNTIME_ONNX = {
    "Affine": (1, 10), "Crop": (1, 10), "DynamicSlice": (1, 10), "GRUUnit": (1, 10),
    "GivenTensorFill": (1, 10), "ImageScaler": (1, 10), "LayerNormalization": (1,),
    "MeanVarianceNormalization": (1,), "MemcpyFromHost": (1,), "MemcpyToHost": (1,),
    "ParametricSoftplus": (1, 10), "Scale": (1, 10), "ScaledTanh": (1, 10),
    "SimplifiedLayerNormalization": (1,), "ThresholdedRelu": (1,),
}  # fmt: skip
_NCHWC = (
    "AveragePool Conv GlobalAveragePool GlobalMaxPool MaxPool ReorderInput ReorderOutput Upsample"
)
_NHWC = """
    AveragePool BatchNormalization Conv ConvTranspose DepthToSpace GlobalAveragePool GlobalLpPool
    GlobalMaxPool GridSample InstanceNormalization LRN LpPool MaxPool MaxUnpool
    QLinearAveragePool QLinearConv QLinearConvTranspose Resize SpaceToDepth
"""
_MICROSOFT = """
    Attention AttnLSTM BeamSearch BiasAdd BiasDropout BiasGelu BiasSoftmax BiasSplitGelu
    BifurcationDetector BitmaskBiasDropout BitmaskDropout BranchwiseRMSNorm CDist
    CausalConvWithState ComplexMul ComplexMulConj ConvStateReplay ConvTransposeWithDynamicPads
    CropAndResize DecoderAttention DecoderMaskedMultiHeadAttention DecoderMaskedSelfAttention
    DequantizeBFP DequantizeLinear DequantizeWithOrder DynamicQuantizeLSTM DynamicQuantizeMatMul
    DynamicSparseAttention DynamicTimeWarping EPContext EmbedLayerNormalization EngramGate
    ExpandDims FastGelu FusedConv FusedGemm FusedMatMul FusedMatMulActivation GatedAdd
    GatedDeltaNet GatedDeltaNetStateReplay GatedRMSNorm GatedRelativePositionBias
    GatherBlockQuantized GatherND GatherPacked Gelu GemmFastGelu GemmFloat8 GemmaRotaryEmbedding
    GreedySearch GridSample GroupNorm GroupQueryAttention HyperConnectionLowRankMix
    HyperConnectionPostMix HyperConnectionPreMix Inverse Irfft IsAllFinite LinearAttention
    LinearAttentionGate LongformerAttention MRotaryEmbedding Mamba2Verify
    MatMulBlockQuantizedFp4Weight MatMulBlockQuantizedFp8Weight MatMulBnb4 MatMulFpQ4
    MatMulInteger16 MatMulIntegerToFloat MatMulNBits MatMulNBitsMlp MatMulNBitsQLoRA
    MatMulNBitsQkv MatMulPacked MaxpoolWithMask MoE MoEGroupRouter MoEPacked MulInteger
    MultiHeadAttention MurmurHash3 NGramHashMapping NGramRepeatBlock NhwcConv NhwcFusedConv
    NhwcMaxPool PackedAttention PackedMultiHeadAttention PackedSparseAttentionIndexer
    PackedSparseAttentionIndexerMerge Pad PagedAttention QAttention QEmbedLayerNormalization
    QGemm QLinearAdd QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool
    QLinearLeakyRelu QLinearMul QLinearReduceMean QLinearSigmoid QLinearSoftmax QLinearWhere
    QMoE QOrderedAttention QOrderedGelu QOrderedLayerNormalization QOrderedLongformerAttention
    QOrderedMatMul QuantizeBFP QuantizeLinear QuantizeWithOrder QuickGelu RMSNormRotary Range
    ReduceSumInteger RelativePositionBias RemovePadding RestorePadding Rfft RotaryEmbedding
    RouterGateUpProj SampleOp Sampling ScaledSiLU SkipGroupNorm SkipLayerNormalization
    SkipSimplifiedLayerNormalization Snpe SparseAttention SparseAttentionIndexer
    SparsePagedAttention SparseToDenseMatMul SpeculativePrefixCommit SwiGLU Tokenizer
    TorchEmbedding TransposeMatMul Trilu UnfoldTensor Unique VarlenCausalConvWithState
    VarlenNGramHashMapping WhisperBeamSearch WordConvEmbedding
"""


@dataclass(frozen=True)
class Vocabulary:
    """Known operators: the versions (since-versions, ascending) at which each one exists.

    ``highest``: the last opset of each domain that is known here.
    """

    versions: Mapping[tuple[str, str], tuple[int, ...]]
    highest: Mapping[str, int] = field(default_factory=dict)

    def extended(self, operators: Iterable[tuple[str, str, int]]) -> Vocabulary:
        """The same and more (domain, operator, version), of a runtime or a model."""
        versions = {key: set(known) for key, known in self.versions.items()}
        highest = dict(self.highest)
        for domain, name, version in operators:
            versions.setdefault((domain, name), set()).add(version)
            highest[domain] = max(version, highest.get(domain, 0))
        return Vocabulary({key: tuple(sorted(known)) for key, known in versions.items()}, highest)

    def objection(self, domain: str, name: str, opset: int) -> str:
        """Why there is no such operator, with what may have been meant; "" when there is one."""
        if domain not in self.highest:
            return f"the domain {domain} is not known{_meant(domain, self.highest)}"
        if opset > self.highest[domain]:
            return f"the highest opset of {domain} that is known is {self.highest[domain]}"
        known = self.versions.get((domain, name))
        if not known:
            names = [other for where, other in self.versions if where == domain]
            return f"{domain} has no operator {name}{_meant(name, names)}"
        if opset < known[0]:
            return f"{domain} has the operator {name} from opset {known[0]} on only"
        return ""

    def since(self, domain: str, name: str, opset: int) -> int:
        """The since-version that ``opset`` means for an operator known at that opset."""
        known = self.versions[domain, name]
        return max(version for version in known if version <= opset)

    def ranges(self, domain: str, name: str) -> tuple[Range, ...]:
        """Opset ranges in which the operator stays the same; () when it is not known.

        Kernel registrations of the runtime are never narrower than these.
        """
        known = self.versions.get((domain, name), ())
        ends = (*(version - 1 for version in known[1:]), OPEN)
        return tuple(zip(known, ends, strict=True)) if known else ()


def _meant(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


@lru_cache(maxsize=1)
def standard() -> Vocabulary:
    """ONNX's operators by the installed ``onnx``, the runtime's own by the tables here."""
    import onnx.defs

    listed = [
        (schema.domain or ONNX, schema.name, schema.since_version)
        for schema in onnx.defs.get_all_schemas_with_history()
    ]
    onnx_versions = {(name, version) for domain, name, version in listed if domain == ONNX}
    listed += [(ONNX, name, each) for name, known in _RUNTIME_ONNX.items() for each in known]
    listed += [(MICROSOFT, name, 1) for name in _MICROSOFT.split()]
    listed += [(NCHWC, name, 1) for name in _NCHWC.split()]
    # The layout transformer's copies of ONNX operators; two of them come from com.microsoft.
    nhwc = _NHWC.split()
    listed += [(NHWC, name, version) for name, version in sorted(onnx_versions) if name in nhwc]
    listed += [(NHWC, name, 1) for name in ("QLinearAveragePool", "QLinearConvTranspose")]
    vocabulary = Vocabulary({}).extended(listed)
    # An opset exists also when none of its operators was born in it.
    return Vocabulary(
        vocabulary.versions, {**vocabulary.highest, ONNX: onnx.defs.onnx_opset_version()}
    )
