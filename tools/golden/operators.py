"""Golden cases for every operator and option: python operators.py"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import golden

rng = np.random.default_rng(0)
FILES: dict[str, dict] = {}
IR = {9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 11}


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def case(op, name, inputs, opset=13, constants=(), outputs=1, nodes=None, batch=True, file=None, kind=np.float32, **attributes):
    """One node of type `op` (or the given nodes from x0, c0, … to y0). `inputs` are fed, `constants` are initializers;
    None leaves an input out. `batch`: the first axis of every input is open."""
    names, infos, inits = [], [], []
    for i, x in enumerate(inputs):
        dims = (["N"] if batch else [x.shape[0]]) + list(x.shape[1:])
        infos.append(helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), dims))
        names.append(f"x{i}")
    for i, c in enumerate(constants):
        names.append("" if c is None else f"c{i}")
        if c is not None:
            inits.append(c if isinstance(c, TensorProto) else numpy_helper.from_array(np.asarray(c), f"c{i}"))
            inits[-1].name = f"c{i}"
    while names and names[-1] == "":
        names.pop()
    outs = [f"y{i}" for i in range(outputs)]
    if nodes is None:
        nodes = [helper.make_node(op, names, outs, name=f"{op}_node", **attributes)]
    graph = helper.make_graph(nodes, "case", infos, [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outs], inits)
    if kind != np.float32:
        for o in graph.output:
            o.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR[opset])
    golden.add(FILES.setdefault(file or op, {}), f"{name}_{opset}", model, list(inputs))


def ints(*values):
    return np.array(values, np.int64)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


# --- convolution -----------------------------------------------------------------------------------------------------
x = normal(2, 4, 7, 5)
for opset in (9, 11, 22):
    case("Conv", "bias", [x], opset, [normal(6, 4, 3, 3), normal(6)], kernel_shape=[3, 3])
w = normal(6, 4, 3, 3)
case("Conv", "padded", [x], 13, [w, normal(6)], pads=[1, 1, 1, 1])
case("Conv", "uneven_pads", [x], 13, [w], pads=[0, 1, 2, 3])
case("Conv", "stride", [x], 13, [w], strides=[2, 2], pads=[1, 1, 1, 1])
case("Conv", "stride_uneven", [x], 13, [w], strides=[1, 3])
case("Conv", "dilation", [x], 13, [w, normal(6)], dilations=[2, 3], pads=[2, 3, 2, 3])
case("Conv", "stride_dilation", [x], 13, [w], dilations=[2, 2], strides=[2, 1], pads=[2, 2, 2, 2])
case("Conv", "groups", [x], 13, [normal(6, 2, 3, 3), normal(6)], group=2, pads=[1, 1, 1, 1])
case("Conv", "depthwise", [x], 13, [normal(4, 1, 3, 3), normal(4)], group=4, pads=[1, 1, 1, 1])
case("Conv", "depthwise_stride", [x], 13, [normal(4, 1, 3, 3)], group=4, strides=[2, 2], pads=[1, 1, 1, 1])
case("Conv", "depthwise_multiplier", [x], 13, [normal(8, 1, 3, 3), normal(8)], group=4, dilations=[2, 2])
case("Conv", "pointwise", [x], 13, [normal(5, 4, 1, 1), normal(5)])
case("Conv", "pointwise_stride", [x], 13, [normal(5, 4, 1, 1)], strides=[2, 2])
case("Conv", "five", [x], 13, [normal(3, 4, 5, 5), normal(3)], pads=[2, 2, 2, 2])
case("Conv", "seven_stride", [normal(1, 3, 9, 10)], 13, [normal(5, 3, 7, 7)], strides=[2, 2], pads=[3, 3, 3, 3])
case("Conv", "window_larger_than_input", [normal(2, 2, 2, 3)], 13, [normal(3, 2, 5, 5)], pads=[2, 2, 2, 2])
case("Conv", "flat_kernel", [x], 13, [normal(5, 4, 1, 5)], pads=[0, 2, 0, 2])
for pad in ("SAME_UPPER", "SAME_LOWER", "VALID"):
    case("Conv", f"auto_{pad.lower()}", [x], 13, [normal(3, 4, 3, 2)], auto_pad=pad, strides=[2, 2])
case("Conv", "line", [normal(2, 3, 12)], 13, [normal(5, 3, 4), normal(5)], pads=[1, 2], strides=[2])
case("Conv", "line_groups", [normal(2, 4, 12)], 13, [normal(4, 1, 3)], group=4, dilations=[2])
case("Conv", "one_image", [normal(1, 8, 4, 4)], 13, [normal(33, 8, 3, 3), normal(33)], pads=[1, 1, 1, 1])
case("Conv", "computed_weight", [x], 13, [w, np.float32(2)], nodes=[node("Mul", ["c0", "c1"], ["w"]), node("Conv", ["x0", "w"], ["y0"])])

# --- matrix products -------------------------------------------------------------------------------------------------
a = normal(3, 5)
for opset in (9, 11, 13):
    case("Gemm", "plain", [a], opset, [normal(5, 4), normal(4)])
case("Gemm", "transposed_b", [a], 13, [normal(4, 5), normal(4)], transB=1)
case("Gemm", "transposed_a", [normal(5, 3)], 13, [normal(5, 4)], transA=1, batch=False)
case("Gemm", "both", [normal(5, 3)], 13, [normal(4, 5)], transA=1, transB=1, batch=False)
case("Gemm", "factors", [a], 13, [normal(4, 5), normal(4)], transB=1, alpha=0.5, beta=-2.0)
case("Gemm", "no_c", [a], 13, [normal(5, 4)], alpha=3.0)
case("Gemm", "c_one", [a], 13, [normal(5, 4), normal(1)])
case("Gemm", "c_scalar", [a], 13, [normal(5, 4), np.float32(0.7)])
case("Gemm", "c_row", [a], 13, [normal(5, 4), normal(1, 4)])
case("Gemm", "c_column", [a], 13, [normal(5, 4), normal(3, 1)], batch=False)
case("Gemm", "c_full", [a], 13, [normal(5, 4), normal(3, 4)], batch=False)
case("Gemm", "beta_zero", [a], 13, [normal(5, 4), np.full(4, np.inf, np.float32)], beta=0.0)
case("Gemm", "one_row", [normal(1, 70)], 13, [normal(130, 70), normal(130)], transB=1)
case("Gemm", "many_rows", [normal(130, 7)], 13, [normal(7, 3), normal(3)])
case("MatMul", "matrix", [a], 13, [normal(5, 4)])
case("MatMul", "tokens", [normal(2, 3, 5)], 9, [normal(5, 4)])
case("MatMul", "batched", [normal(2, 3, 5), normal(2, 5, 4)])
case("MatMul", "batched_repeat", [normal(2, 3, 4, 5)], 13, [normal(3, 5, 2)])
case("MatMul", "batched_repeat_left", [normal(2, 1, 4, 5), normal(2, 3, 5, 2)])

# --- normalisation ---------------------------------------------------------------------------------------------------
for shape in ((3, 4), (3, 4, 6), (3, 4, 6, 5)):
    parameters = [normal(4), normal(4), normal(4), np.abs(normal(4)) + 0.1]
    for opset in (9, 14, 15):
        case("BatchNormalization", f"rank{len(shape)}", [normal(*shape)], opset, parameters, epsilon=1e-3)
case("BatchNormalization", "default", [normal(3, 4, 2, 2)], 15, parameters)
y = normal(2, 3, 4, 5)
for opset in (17, 20):
    case("LayerNormalization", "last", [y], opset, [normal(5), normal(5)])
case("LayerNormalization", "from_axis_2", [y], 17, [normal(4, 5), normal(4, 5)], axis=2, epsilon=1e-2)
case("LayerNormalization", "no_bias", [y], 17, [normal(3, 4, 5)], axis=-3)

# --- elementwise -----------------------------------------------------------------------------------------------------
wide = np.concatenate([normal(2, 40) * 3, [[-100, -20, -6, -3, -1e-3, -0.0, 0, 1e-3, 3, 6, 20, 100]] * 2], 1).astype(np.float32)
for op, opsets in {"Relu": (9, 13, 14), "Sigmoid": (9, 13), "Tanh": (9, 13), "HardSwish": (14, 22), "Erf": (9, 13), "Identity": (9, 13, 16)}.items():
    for opset in opsets:
        case(op, "wide", [wide], opset)
case("Sqrt", "wide", [np.abs(wide)])
case("Relu", "image", [normal(2, 3, 4, 5)])
for opset in (9, 16):
    case("LeakyRelu", "default", [wide], opset)
case("LeakyRelu", "slope", [wide], 13, alpha=0.3)
case("HardSigmoid", "default", [wide])
case("HardSigmoid", "slope", [wide], 13, alpha=1 / 6, beta=0.4)
case("Gelu", "exact", [wide], 20)
case("Gelu", "tanh", [wide], 20, approximate="tanh")
for opset in (9, 16):
    case("PRelu", "channel", [y], opset, [normal(3, 1, 1)])
case("PRelu", "one", [y], 13, [normal(1)])
case("Clip", "attributes", [wide], 9, min=-1.0, max=2.0)
case("Clip", "attribute", [wide], 10, max=2.0)
for opset in (11, 12, 13):
    case("Clip", "inputs", [wide], opset, [np.float32(0), np.float32(6)])
case("Clip", "lower", [wide], 13, [np.float32(-0.5)])
case("Clip", "upper", [wide], 13, [None, np.float32(0.5)])
case("Clip", "none", [wide], 13)
for op in ("Add", "Sub", "Mul", "Div"):
    for opset in (9, 13, 14):
        case(op, "same", [y, normal(2, 3, 4, 5) + 3], opset)
    case(op, "channel", [y], 13, [normal(3, 1, 1) + 3])
    case(op, "number", [y], 13, [np.float32(1.5)])
    case(op, "number_first", [y], 13, [np.float32(1.5)], nodes=[node(op, ["c0", "x0"], ["y0"])])
    case(op, "both_repeated", [normal(2, 1, 4, 1), normal(2, 3, 1, 5) + 3])
    case(op, "row", [normal(2, 7)], 13, [normal(7) + 3])
    case(op, "higher_rank", [normal(1, 7)], 13, [normal(3, 1, 7) + 3], batch=False)
case("Pow", "square", [wide], 13, [np.float32(2)])
case("Pow", "root", [np.abs(wide)], 13, [np.float32(0.5)])
case("Pow", "any", [np.abs(wide) + 0.1], 9, [np.float32(1.7)])
for op in ("Softmax", "LogSoftmax"):
    for opset in (9, 12):
        case(op, "matrix", [wide], opset)
        case(op, "flattened", [y], opset, axis=1)
        case(op, "flattened_2", [y], opset, axis=2)
        case(op, "image_1x1", [normal(2, 5, 1, 1)], opset)
    for opset in (13,):
        case(op, "last", [y], opset)
        case(op, "channel", [y], opset, axis=1)
        case(op, "large", [wide * 30], opset, axis=-1)

# --- pooling ---------------------------------------------------------------------------------------------------------
image = normal(2, 3, 9, 8)
for op, opsets in {"MaxPool": (9, 10, 12, 22), "AveragePool": (9, 10, 11, 19, 22)}.items():
    for opset in opsets:
        case(op, "two", [image], opset, kernel_shape=[2, 2], strides=[2, 2])
    case(op, "padded", [image], 12, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    case(op, "uneven", [image], 12, kernel_shape=[3, 2], strides=[2, 3], pads=[0, 1, 1, 0])
    case(op, "ceil", [image], 12, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    case(op, "ceil_padded", [image], 12, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1)
    case(op, "ceil_drops_place", [normal(1, 2, 5, 5)], 12, kernel_shape=[1, 1], strides=[3, 3], pads=[0, 0, 0, 0], ceil_mode=1)
    case(op, "line", [normal(2, 3, 11)], 12, kernel_shape=[3], strides=[2], pads=[1, 1])
    case(op, "overlapping", [image], 12, kernel_shape=[4, 4])
    for pad in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        case(op, f"auto_{pad.lower()}", [image], 12, kernel_shape=[3, 2], strides=[2, 2], auto_pad=pad)
case("MaxPool", "dilated", [image], 12, kernel_shape=[3, 2], dilations=[2, 3], strides=[1, 2])
case("AveragePool", "dilated", [image], 19, kernel_shape=[3, 2], dilations=[2, 3], strides=[1, 2])
case("AveragePool", "pad_counts", [image], 12, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1)
case("AveragePool", "pad_counts_ceil", [image], 19, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 1, 1], count_include_pad=1, ceil_mode=1)
case("GlobalAveragePool", "image", [image])
case("GlobalAveragePool", "line", [normal(2, 3, 11)], 9)
for opset in (9, 11, 13):
    case("ReduceMean", "spatial", [image], opset, axes=[2, 3])
    case("ReduceMean", "spatial_dropped", [image], opset, axes=[2, 3], keepdims=0)
case("ReduceMean", "from_end", [image], 13, axes=[-1])
case("ReduceMean", "channel", [image], 13, axes=[1], keepdims=0)
case("ReduceMean", "first_and_last", [image], 13, axes=[1, 3])
case("ReduceMean", "all", [image], 13, batch=False)
case("ReduceMean", "input", [image], 18, [ints(2, -1)])
case("ReduceMean", "nothing", [image], 18, noop_with_empty_axes=1)

# --- shapes ----------------------------------------------------------------------------------------------------------
case("Concat", "channels", [y, normal(2, 1, 4, 5), normal(2, 4, 4, 5)], 9, axis=1)
case("Concat", "columns", [y, normal(2, 3, 4, 2)], 13, axis=-1)
case("Concat", "with_weight", [normal(1, 3, 4)], 13, [normal(1, 2, 4)], axis=1, batch=False)
for opset in (9, 11, 13, 21):
    case("Flatten", "default", [y], opset)
case("Flatten", "axis_2", [y], 13, axis=2)
case("Flatten", "axis_0", [y], 13, axis=0, batch=False)
case("Flatten", "axis_end", [y], 13, axis=4)
case("Flatten", "negative", [y], 13, axis=-2)
for opset in (9, 13, 14, 21):
    case("Reshape", "zero_and_rest", [y], opset, [ints(0, -1)])
    case("Reshape", "rest_first", [y], opset, [ints(-1, 60)])
case("Reshape", "split", [normal(2, 12)], 13, [ints(-1, 3, 2, 2)])
case("Reshape", "merge_batch", [y], 13, [ints(-1, 5)])
case("Reshape", "fixed", [y], 13, [ints(2, 12, 5)], batch=False)
case("Reshape", "computed", [y], 9, [np.int64(0), ints(-1)], nodes=[
    node("Shape", ["x0"], ["s"]), node("Gather", ["s", "c0"], ["n"], axis=0), node("Unsqueeze", ["n"], ["u"], axes=[0]),
    node("Concat", ["u", "c1"], ["t"], axis=0), node("Reshape", ["x0", "t"], ["y0"])])
case("Reshape", "computed_product", [y], 15, [ints(-1)], nodes=[
    node("Shape", ["x0"], ["n"], start=0, end=1), node("Shape", ["x0"], ["chw"], start=1), node("ReduceProd", ["chw"], ["p"], keepdims=1),
    node("Concat", ["n", "p"], ["t"], axis=0), node("Reshape", ["x0", "t"], ["y0"])])
unit = normal(2, 1, 3, 1)
for opset in (9, 11):
    case("Squeeze", "axes", [unit], opset, axes=[1, 3])
    case("Unsqueeze", "axes", [y], opset, axes=[1, 4])
for opset in (13, 21):
    case("Squeeze", "axes", [unit], opset, [ints(-1)])
    case("Unsqueeze", "axes", [y], opset, [ints(-1, 1)])
case("Squeeze", "all", [unit], 13)
case("Transpose", "nhwc", [y], 9, perm=[0, 2, 3, 1])
case("Transpose", "nchw", [y], 13, perm=[0, 3, 1, 2])
case("Transpose", "default", [y], 13)
case("Transpose", "tokens", [normal(2, 3, 4)], 21, perm=[0, 2, 1])
case("Pad", "attributes", [y], 9, pads=[0, 0, 1, 2, 0, 0, 3, 0], value=0.5)
for opset in (11, 13, 21):
    case("Pad", "inputs", [y], opset, [ints(0, 1, 1, 2, 0, 0, 3, 0), np.float32(0.5)])
case("Pad", "default_value", [y], 13, [ints(0, 0, 1, 1, 0, 0, 1, 1)])
case("Pad", "crop", [y], 13, [ints(0, 0, -1, 2, 0, 0, 1, -3)])
case("Pad", "edge", [y], 13, [ints(0, 0, 2, 3, 0, 0, 4, 5)], mode="edge")
case("Pad", "reflect", [y], 13, [ints(0, 0, 2, 3, 0, 0, 3, 4)], mode="reflect")
case("Pad", "axes", [y], 18, [ints(1, 2, 3, 4), np.float32(-1), ints(3, -2)])
case("Slice", "attributes", [y], 9, axes=[1, 2], starts=[1, -3], ends=[3, 1000])
case("Slice", "attributes_no_axes", [y], 9, starts=[0, 1], ends=[2, 3], batch=False)
for opset in (10, 11, 13):
    case("Slice", "inputs", [y], opset, [ints(1, 0), ints(3, -1), ints(1, 3)])
case("Slice", "steps", [y], 13, [ints(0, 4), ints(9223372036854775807, 0), ints(2, 3), ints(2, -2)])
case("Slice", "backwards", [y], 13, [ints(-1), ints(-9223372036854775808), ints(-1), ints(-1)])
case("Slice", "whole_batch", [y], 13, [ints(0, 1), ints(9223372036854775807, 2), ints(0, 1)])
for opset in (9, 11, 13):
    case("Gather", "vector", [y], opset, [ints(2, 0, 2)], axis=1)
case("Gather", "one", [y], 13, [np.int64(-1)], axis=2)
case("Gather", "matrix", [y], 13, [np.array([[0, 1], [2, 0]], np.int32)], axis=-3)
case("Split", "equal", [normal(2, 6, 4)], 9, outputs=3, axis=1)
case("Split", "sizes", [normal(2, 6, 4)], 11, outputs=2, axis=1, split=[2, 4])
case("Split", "input", [normal(2, 6, 4)], 13, [ints(1, 3)], outputs=2, axis=-1)
case("Split", "number", [normal(2, 5, 4)], 18, outputs=3, axis=1, num_outputs=3)
case("Sum", "taken_names", [y, y * 2, y], 13, nodes=[node("Sum", ["x0", "x1", "x2"], ["s"]), node("Relu", ["x0"], ["s.0"]), node("Add", ["s", "s.0"], ["y0"])])
case("Sum", "three", [y, y * 2, normal(2, 1, 4, 5)])
case("Neg", "number", [y])
case("Reciprocal", "number", [np.abs(y) + 0.1])
case("Tile", "two_axes", [y], 13, [ints(1, 1, 2, 3)])
case("Tile", "nothing", [y], 9, [ints(1, 1, 1, 1)])
case("CastLike", "weight", [y], 15, [np.float64(2.5)], nodes=[node("CastLike", ["c0", "x0"], ["c"]), node("Mul", ["x0", "c"], ["y0"])])
for opset in (9, 11):
    case("Dropout", "ratio", [y], opset, ratio=0.3)
for opset in (12, 13, 22):
    case("Dropout", "input", [y], opset, [np.float32(0.3)])

# --- interpolation ---------------------------------------------------------------------------------------------------
small = normal(1, 2, 4, 5)
two = np.array([1, 1, 2, 2], np.float32)
odd = np.array([1, 1, 1.6, 2.3], np.float32)
half = np.array([1, 1, 0.5, 0.6], np.float32)
case("Upsample", "nearest", [small], 9, [two], file="Resize")
case("Upsample", "linear", [small], 9, [two], file="Resize", mode="linear")
case("Resize", "nearest", [small], 10, [two])
case("Resize", "nearest_smaller", [small], 10, [half])
case("Resize", "linear", [small], 10, [two], mode="linear")
empty = np.array([], np.float32)
for mode in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
    for name, scales in (("two", two), ("odd", odd), ("half", half)):
        case("Resize", f"linear_{mode}_{name}", [small], 11, [empty, scales], mode="linear", coordinate_transformation_mode=mode)
        for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            case("Resize", f"{rounding}_{mode}_{name}", [small], 13, [empty, scales], coordinate_transformation_mode=mode, nearest_mode=rounding)
case("Resize", "tf_nn", [small], 11, [empty, odd], coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="floor")
case("Resize", "symmetric", [small], 19, [None, odd], mode="linear", coordinate_transformation_mode="half_pixel_symmetric")
case("Resize", "sizes", [small], 13, [None, None, ints(1, 2, 7, 9)], mode="linear", batch=False)
case("Resize", "sizes_axes", [small], 18, [None, None, ints(7, 9)], mode="linear", axes=[2, 3])
case("Resize", "scales_axes", [small], 18, [None, np.array([3.0, 2.0], np.float32)], axes=[3, -2])
for old, new in ((22, 13), (26, 32)):  # ties that depend on how size / length is rounded
    for mode in ("half_pixel", "asymmetric"):
        case("Resize", f"ties_{mode}_{old}_{new}", [normal(1, 1, 1, old)], 13, [None, None, ints(1, 1, 1, new)], batch=False, coordinate_transformation_mode=mode, nearest_mode="round_prefer_ceil")
case("Resize", "computed_sizes", [small], 13, [ints(0), ints(2), ints(8, 10)], nodes=[
    node("Shape", ["x0"], ["s"]), node("Slice", ["s", "c0", "c1"], ["nc"]), node("Concat", ["nc", "c2"], ["t"], axis=0),
    node("Resize", ["x0", "", "", "t"], ["y0"], mode="linear", coordinate_transformation_mode="pytorch_half_pixel")])
case("Resize", "computed_floats", [small], 11, [ints(2), ints(4), np.array([2, 2], np.float32), ints(0), ints(2), empty], nodes=[
    node("Shape", ["x0"], ["s"]), node("Slice", ["s", "c0", "c1"], ["hw"]), node("Cast", ["hw"], ["f"], to=1), node("Mul", ["f", "c2"], ["g"]),
    node("Floor", ["g"], ["h"]), node("Cast", ["h"], ["i"], to=7), node("Slice", ["s", "c3", "c4"], ["nc"]), node("Concat", ["nc", "i"], ["t"], axis=0),
    node("Resize", ["x0", "c5", "c5", "t"], ["y0"])])

# --- how weights can be stored ---------------------------------------------------------------------------------------
m, v = normal(5, 4), normal(4)
case("Weights", "typed", [a], 13, [helper.make_tensor("", 1, m.shape, m.flatten().tolist()), v], nodes=[node("Gemm", ["x0", "c0", "c1"], ["y0"])])
case("Weights", "typed_half", [a], 13, [helper.make_tensor("", 10, m.shape, m.flatten().tolist())], nodes=[node("Cast", ["c0"], ["w"], to=1), node("MatMul", ["x0", "w"], ["y0"])])
case("Weights", "double", [a], 13, [m.astype(np.float64), v.astype(np.float64)], nodes=[node("Gemm", ["x0", "c0", "c1"], ["y0"])], kind=np.float64)
case("Weights", "typed_double", [a], 13, [helper.make_tensor("", 11, m.shape, m.flatten().tolist())], nodes=[node("MatMul", ["x0", "c0"], ["y0"])], kind=np.float64)
case("Weights", "half_exact", [np.round(a * 4) / 4], 13, [(np.round(m * 4) / 4).astype(np.float16)], nodes=[node("MatMul", ["x0", "c0"], ["y0"])], kind=np.float16)
case("Weights", "bfloat_cast", [a], 13, [helper.make_tensor("", 16, m.shape, m.flatten().tolist())], nodes=[node("Cast", ["c0"], ["w"], to=1), node("MatMul", ["x0", "w"], ["y0"])])
case("Weights", "constant_nodes", [a], 13, [], nodes=[
    node("Constant", [], ["w"], value=numpy_helper.from_array(m)), node("Constant", [], ["b"], value_floats=v.tolist()),
    node("Constant", [], ["s"], value_float=0.5), node("Gemm", ["x0", "w", "b"], ["g"]), node("Mul", ["g", "s"], ["y0"])])
case("Weights", "integers_cast", [a], 13, [ints(3)], nodes=[node("Cast", ["c0"], ["w"], to=1), node("Mul", ["x0", "w"], ["y0"])])

for file, cases in sorted(FILES.items()):
    golden.save(f"operators/{file}.npz", cases)
print(f"onnx {onnx.__version__}")
