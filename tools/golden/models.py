"""The networks of the golden cases, with random weights: narrow ones that can be committed, and those of full width."""

import torch
import torchvision
from torch import nn


def mlp(a, b):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, a), nn.ReLU(), nn.Linear(a, b), nn.ReLU(), nn.Linear(b, 10))


class LeNet5(nn.Module):
    """Caffe's, with the flatten written as many people do."""

    def __init__(self, a, b, c, size=28):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, a, 5), nn.Conv2d(a, b, 5)
        self.fc1, self.fc2 = nn.Linear(b * ((size - 4) // 2 - 4) // 2 * (((size - 4) // 2 - 4) // 2), c), nn.Linear(c, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.conv1(x), 2)
        x = nn.functional.max_pool2d(self.conv2(x), 2)
        x = torch.relu(self.fc1(x.view(x.size(0), -1)))
        return nn.functional.log_softmax(self.fc2(x), dim=1)


class VGG11(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        layers, inputs = [], 3
        for v in (1, "M", 2, "M", 4, 4, "M", 8, 8, "M", 8, 8, "M"):
            if v == "M":
                layers.append(nn.MaxPool2d(2))
            else:
                layers += [nn.Conv2d(inputs, v * width, 3, padding=1), nn.BatchNorm2d(v * width), nn.ReLU(inplace=True)]
                inputs = v * width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Dropout(), nn.Linear(hidden, 10))

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


def resnet18(width):
    net = torchvision.models.ResNet(torchvision.models.resnet.BasicBlock, [2, 2, 2, 2], num_classes=10)
    if width == 64:
        return net
    # The same graph with fewer channels.
    shrink(net, width / 64)
    return net


def shrink(net, factor):
    """Replaces every layer of a torchvision model by one with fewer channels; the three input channels stay."""
    size = lambda n: n if n <= 3 else max(1, round(n * factor))
    for module in list(net.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Conv2d):
                groups = size(child.in_channels) if child.groups > 1 else 1
                new = nn.Conv2d(size(child.in_channels), size(child.out_channels), child.kernel_size, child.stride,
                                child.padding, child.dilation, groups, child.bias is not None)
            elif isinstance(child, nn.BatchNorm2d):
                new = nn.BatchNorm2d(size(child.num_features))
            elif isinstance(child, nn.Linear):
                new = nn.Linear(size(child.in_features), child.out_features)
            else:
                continue
            setattr(module, name, new)


class SqueezeNet(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.net = torchvision.models.squeezenet1_1(num_classes=10)
        if factor != 1:
            shrink(self.net, factor)
            last = self.net.classifier[1]
            self.net.classifier[1] = nn.Conv2d(last.in_channels, 10, 1)

    def forward(self, x):
        return self.net(x)


class DenseBlock(nn.Module):
    """Batch norm in front of the convolution, every output concatenated to all before, then a transition."""

    def __init__(self, width, growth):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.layers = nn.ModuleList()
        for i in range(4):
            c = width + i * growth
            self.layers.append(nn.Sequential(nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, 2 * growth, 1, bias=False),
                                             nn.BatchNorm2d(2 * growth), nn.ReLU(), nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False)))
        c = width + 4 * growth
        self.transition = nn.Sequential(nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c // 2, 1), nn.AvgPool2d(2))
        self.head = nn.Linear(c // 2, 10)

    def forward(self, x):
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return self.head(self.transition(torch.cat(features, 1)).mean((2, 3)))


class UNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        block = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.LeakyReLU(0.1))
        self.down1, self.down2, self.middle = block(3, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.up2, self.up1 = block(6 * width, 2 * width), block(3 * width, width)
        self.out = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(nn.functional.max_pool2d(a, 2))
        c = self.middle(nn.functional.max_pool2d(b, 2))
        c = nn.functional.interpolate(c, scale_factor=2, mode="bilinear", align_corners=False)
        b = self.up2(torch.cat([c, b], 1))
        b = nn.functional.interpolate(b, size=a.shape[2:], mode="nearest")
        return torch.sigmoid(self.out(self.up1(torch.cat([b, a], 1))))


class Modern(nn.Module):
    """GELU, LayerNorm, squeeze-and-excite, hard activations, PReLU: what newer classifiers add."""

    def __init__(self, width):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 4, stride=4), nn.PReLU(width))
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, 4, 1), nn.ReLU(), nn.Conv2d(4, width, 1), nn.Hardsigmoid())
        self.act = nn.Sequential(nn.Hardswish(), nn.SiLU(), nn.ReLU6(), nn.Tanh())
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.stem(x)
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.narrow(nn.functional.gelu(self.wide(y))).permute(0, 3, 1, 2)
        x = x + y
        x = self.act(x * self.squeeze(x))
        a, b = torch.chunk(x, 2, dim=1)
        return self.head(torch.cat([b, a], 1).mean([-2, -1])).softmax(-1)


def narrow_mobilenet():
    net = torchvision.models.mobilenet_v2(num_classes=10)
    shrink(net, 0.05)
    return net


def randomize(net):
    """Batch norm statistics and slopes that are not all 0 and 1."""
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.3)
            m.running_var.uniform_(0.5, 1.5)
            nn.init.uniform_(m.weight, 0.5, 1.5)
            nn.init.normal_(m.bias, 0, 0.2)


def networks():
    """Name, network, input shape; below 100 kB with their weights."""
    yield "mlp", mlp(12, 8), (1, 28, 28)
    yield "lenet5", LeNet5(4, 8, 16), (1, 28, 28)
    yield "vgg11", VGG11(2, 16), (3, 32, 32)
    yield "resnet18", resnet18(2), (3, 32, 32)
    yield "mobilenet_v2", narrow_mobilenet(), (3, 32, 32)
    yield "squeezenet", SqueezeNet(1 / 16), (3, 33, 32)
    yield "densenet", DenseBlock(4, 3), (3, 8, 8)
    yield "unet", UNet(3), (3, 8, 12)
    yield "modern", Modern(8), (3, 16, 16)


def full_width():
    yield "mlp", mlp(300, 100), (1, 28, 28)
    yield "lenet5", LeNet5(20, 50, 500), (1, 28, 28)
    yield "vgg11", VGG11(64, 512), (3, 32, 32)
    yield "resnet18", resnet18(64), (3, 64, 64)
    yield "mobilenet_v2", torchvision.models.mobilenet_v2(num_classes=10), (3, 64, 64)
    yield "squeezenet", SqueezeNet(1), (3, 64, 64)
    yield "densenet", DenseBlock(24, 12), (3, 32, 32)
    yield "unet", UNet(16), (3, 32, 32)
    yield "modern", Modern(48), (3, 32, 32)
