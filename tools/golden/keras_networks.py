"""Golden cases for networks with random weights from Keras, exported by tf2onnx and by Keras itself (which calls
tf2onnx with its own options): python keras_networks.py"""

import os
import pathlib
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np
import tensorflow as tf
import tf2onnx
from keras import layers

import golden

keras.utils.set_random_seed(0)


def convnet():
    """Channels last, as Keras has it: the exporter puts Transpose in front."""
    return keras.Sequential([
        keras.Input((12, 12, 3)),
        layers.Conv2D(6, 3, padding="same", strides=2), layers.BatchNormalization(), layers.ReLU(),
        layers.DepthwiseConv2D(3, padding="same"), layers.BatchNormalization(), layers.ReLU(6.0),
        layers.Conv2D(8, 1, activation="relu"), layers.MaxPooling2D(2), layers.ZeroPadding2D(1), layers.AveragePooling2D(2),
        layers.Dropout(0.5), layers.Flatten(), layers.Dense(9, activation="tanh"), layers.Dense(5, activation="softmax")])


def residual():
    x = start = keras.Input((8, 8, 4))
    y = layers.Conv2D(4, 3, padding="same", use_bias=False)(x)
    y = layers.BatchNormalization()(y)
    y = layers.LeakyReLU(negative_slope=0.2)(y)
    x = layers.Concatenate()([layers.Add()([x, y]), y])
    s = layers.Dense(8, activation="sigmoid")(layers.GlobalAveragePooling2D(keepdims=True)(x))
    x = layers.UpSampling2D(2)(layers.Multiply()([x, s]))
    x = layers.Activation("swish")(layers.LayerNormalization()(x))
    return keras.Model(start, layers.Dense(3)(layers.GlobalAveragePooling2D()(x)))


def mlp():
    return keras.Sequential([keras.Input((20,)), layers.Dense(16, activation="relu"), layers.Dense(4)])


for name, model in {"convnet": convnet(), "residual": residual(), "mlp": mlp()}.items():
    for v in model.variables:  # statistics of batch norm that are not all 0 and 1
        if "moving" in v.path or "gamma" in v.path:
            v.assign(np.random.default_rng(1).uniform(0.5, 1.5, v.shape))
    shape = model.input_shape[1:]
    x = np.random.default_rng(0).standard_normal((2, *shape)).astype(np.float32)
    for opset in (9, 13, 17):
        cases = {}
        try:
            signature = [tf.TensorSpec((None, *shape), tf.float32, name="x")]
            proto, _ = tf2onnx.convert.from_function(tf.function(lambda x: model(x, training=False), input_signature=signature), signature, opset=opset)
            golden.add(cases, f"tf2onnx_{opset}", proto, [x])
        except Exception as e:
            print(f"{name} {opset}: not exported: {str(e).splitlines()[0][:150]}")
            continue
        golden.save(f"networks/keras_{name}_{opset}.npz", cases)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.onnx"
        model.export(path, format="onnx", verbose=False)
        cases = {}
        golden.add(cases, "export", path.read_bytes(), [x])
        golden.save(f"networks/keras_{name}_export.npz", cases)
