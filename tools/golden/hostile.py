"""Models that must be refused, each with a part of the message it must give: python hostile.py"""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import golden

CASES = {}


def model(nodes, inputs=None, outputs=("y",), inits=(), opset=17, **extra):
    inputs = {"x": ["N", 4]} if inputs is None else inputs
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    outs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    graph = helper.make_graph(nodes, "hostile", infos, outs, list(inits))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, **extra)


def refuse(name, proto, message):
    CASES[f"{name}/model"] = np.frombuffer(proto if isinstance(proto, bytes) else proto.SerializeToString(), np.uint8)
    CASES[f"{name}/message"] = np.frombuffer(message.encode(), np.uint8)


def node(op, inputs, outputs, name="", **attributes):
    return helper.make_node(op, inputs, outputs, name=name, **attributes)


def raw(name, dims, data=b"", kind=1):
    t = TensorProto(name=name, data_type=kind)
    t.dims.extend(dims)
    t.raw_data = data
    return t


def external(location, dims=(4, 4), **entries):
    t = raw("w", dims)
    t.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        e = t.external_data.add()
        e.key, e.value = key, str(value)
    return t


gemm = [node("Gemm", ["x", "w"], ["y"], "layer")]
relu = [node("Relu", ["x"], ["y"])]
w = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")

refuse("cycle", model([node("Add", ["x", "b"], ["a"], "first"), node("Relu", ["a"], ["b"], "second"), node("Relu", ["b"], ["y"], "third")]), "cycle")
refuse("self_cycle", model([node("Add", ["x", "y"], ["y"], "snake")]), "snake")
refuse("written_twice", model([node("Relu", ["x"], ["y"]), node("Relu", ["x"], ["y"])]), "written twice")
refuse("writes_an_input", model([node("Relu", ["x"], ["x"])], outputs=("x",)), "cycle")
refuse("undefined", model([node("Relu", ["nowhere"], ["y"])]), "never written")
refuse("undefined_output", model(relu, outputs=("z",)), "never written")
refuse("no_output", model(relu, outputs=()), "no output")
refuse("huge_weight", model(gemm, inits=[raw("w", [2**40, 2**40])]), "dimensions")
refuse("large_weight_without_data", model(gemm, inits=[raw("w", [2**30, 1])]), "has 0 numbers")
refuse("negative_weight", model(gemm, inits=[raw("w", [-4, 4])]), "dimensions")
refuse("short_weight", model(gemm, inits=[raw("w", [4, 4], b"\0" * 60)]), "has 15 numbers")
refuse("ragged_weight", model(gemm, inits=[raw("w", [4, 4], b"\0" * 63)]), "has 0 numbers")
refuse("text_weight", model(gemm, inits=[raw("w", [4, 4], b"\0" * 64, kind=8)]), "string")
refuse("huge_input", model(relu, inputs={"x": ["N", 2**40, 2**40]}), "more than")
refuse("empty_input", model(relu, inputs={"x": ["N", 0]}), "dimension of 0")
refuse("open_dimension", model(relu, inputs={"x": ["N", "width"]}), "width")
refuse("wrong_depth", model(gemm, inits=[numpy_helper.from_array(np.ones((5, 4), np.float32), "w")]), "inner sizes")
refuse("wrong_rank", model([node("Conv", ["x", "w"], ["y"], "layer")], inits=[w]), "spatial axes")
conv_w = numpy_helper.from_array(np.ones((2, 3, 3, 3), np.float32), "w")
image = {"x": ["N", 3, 8, 8]}
refuse("zero_group", model([node("Conv", ["x", "w"], ["y"], group=0)], image, inits=[conv_w]), "groups")
refuse("negative_group", model([node("Conv", ["x", "w"], ["y"], group=-1)], image, inits=[conv_w]), "group is -1")
refuse("zero_stride", model([node("Conv", ["x", "w"], ["y"], strides=[0, 1])], image, inits=[conv_w]), "strides")
refuse("huge_stride", model([node("Conv", ["x", "w"], ["y"], strides=[2**62, 2**62])], image, inits=[conv_w]), "strides")
refuse("huge_pads", model([node("Conv", ["x", "w"], ["y"], pads=[2**62] * 4)], image, inits=[conv_w]), "pads")
refuse("large_pads", model([node("Conv", ["x", "w"], ["y"], pads=[2**30] * 4)], image, inits=[conv_w]), "elements")
refuse("window_too_large", model([node("MaxPool", ["x"], ["y"], kernel_shape=[9, 9])], image), "does not fit")
refuse("wrong_attribute_type", model([node("LeakyRelu", ["x"], ["y"], alpha=3)]), "wrong type")
refuse("unknown_attribute", model([node("Relu", ["x"], ["y"], "odd", speed=3)]), "unknown attribute")
refuse("axis_outside", model([node("Softmax", ["x"], ["y"], axis=7)]), "axis 7")
refuse("reshape_to_nothing", model([node("Reshape", ["x", "s"], ["y"])], inits=[numpy_helper.from_array(np.array([7, -1], np.int64), "s")]), "reshaped")
refuse("reshape_huge", model([node("Reshape", ["x", "s"], ["y"])], inits=[numpy_helper.from_array(np.array([2**62, 2**62], np.int64), "s")]), "elements")
refuse("resize_huge", model([node("Resize", ["x", "", "s"], ["y"])], image, inits=[numpy_helper.from_array(np.array([1, 1, 1e9, 1e9], np.float32), "s")]), "scaled")
refuse("resize_nan", model([node("Resize", ["x", "", "s"], ["y"])], image, inits=[numpy_helper.from_array(np.array([1, 1, np.nan, -1], np.float32), "s")]), "scaled")
refuse("pad_huge", model([node("Pad", ["x", "p"], ["y"])], inits=[numpy_helper.from_array(np.array([0, 2**62, 0, 2**62], np.int64), "p")]), "padded")
refuse("constant_of_huge_shape", model([node("ConstantOfShape", ["s"], ["c"]), node("Add", ["x", "c"], ["y"])], inits=[numpy_helper.from_array(np.array([2**40], np.int64), "s")]), "ConstantOfShape")
refuse("mixes_the_batch", model([node("ReduceMean", ["x"], ["y"], axes=[0])]), "mix")
refuse("second_output_used", model([node("MaxPool", ["x"], ["m", "i"], kernel_shape=[2, 2]), node("Add", ["m", "i"], ["y"])], image), "further output")
refuse("too_new", model(relu, opset=1000), "opset 1000")
refuse("too_old", model(relu, opset=7), "opset 7")
refuse("integer_input", helper.make_model(helper.make_graph(relu, "g", [helper.make_tensor_value_info("x", TensorProto.INT64, ["N", 4])], [helper.make_tensor_value_info("y", TensorProto.INT64, None)]), opset_imports=[helper.make_opsetid("", 17)]), "int64")
several = [node("LSTM", ["x"], ["a"], "memory"), node("Relu", ["a"], ["b"], "fine"), node("Einsum", ["b"], ["c"], "sum", equation="ij"), node("Loop", ["c"], ["y"], "")]
refuse("all_are_listed", model(several), "memory (LSTM)")
refuse("all_are_listed_2", model(several), "sum (Einsum)")
refuse("all_are_listed_3", model(several), "Loop_3 (Loop)")
refuse("custom_domain", model([node("FusedConv", ["x"], ["y"], "fused", domain="com.microsoft")]), "com.microsoft.FusedConv")
refuse("path_up", model(gemm, inits=[external("../weights.bin")]), "outside the model's folder")
refuse("path_absolute", model(gemm, inits=[external("/etc/passwd")]), "outside the model's folder")
refuse("path_empty", model(gemm, inits=[external("")]), "outside the model's folder")
refuse("path_dots_inside", model(gemm, inits=[external("a/../../weights.bin")]), "outside the model's folder")
refuse("external_missing", model(gemm, inits=[external("not-there.bin")]), "not-there.bin")
refuse("external_offset", model(gemm, inits=[external("external.bin", offset=2**63, length=2**63)]), "wants bytes")
refuse("external_length", model(gemm, inits=[external("external.bin", length=4)]), "has 4 bytes")
refuse("external_negative", model(gemm, inits=[external("external.bin", offset=-1)]), "offset")
refuse("external_folder", model(gemm, inits=[external("folder")]), "outside the model's folder")
refuse("external_link", model(gemm, inits=[external("link.bin")]), "outside the model's folder")
refuse("split_overflow", model([node("Split", ["x", "s"], ["y", "a", "b"], axis=1)], inits=[numpy_helper.from_array(np.array([2**63 - 1, 2**63 - 1, 6], np.int64), "s")]), "is split into")
refuse("resize_10_mixed", model([node("Resize", ["x", "s"], ["y"])], image, inits=[numpy_helper.from_array(np.array([1, 1, 2, 0.5], np.float32), "s")], opset=10), "opset 10")
refuse("integer_arithmetic", model([node("Div", ["a", "b"], ["c"]), node("Add", ["x", "c"], ["y"])], inits=[numpy_helper.from_array(np.array([[7], [9]], np.int64), "a"), numpy_helper.from_array(np.array([[2, 4]], np.int64), "b")]), "integers")
many = [node("ConstantOfShape", ["s"], [f"c{i}"]) for i in range(600)]
refuse("many_constants", model(many + relu, inits=[numpy_helper.from_array(np.array([65536], np.int64), "s")]), "too many constants")
refuse("empty_file", b"", "no operator set")
refuse("text_file", b"this is not a model", "not a readable ONNX file")
refuse("no_graph", helper.make_model(helper.make_graph([], "g", [], []), opset_imports=[helper.make_opsetid("", 17)]), "no output")

golden.save("hostile.npz", CASES)

# One that must be accepted: weights in a file of their own, behind 16 other bytes.
weights = np.arange(16, dtype=np.float32).reshape(4, 4)
accepted = model(gemm, inits=[external("weights/external.bin", offset=16, length=64)])
golden.save("external.npz", {"model": np.frombuffer(accepted.SerializeToString(), np.uint8), "weights": np.frombuffer(b"\xff" * 16 + weights.tobytes(), np.uint8)})
