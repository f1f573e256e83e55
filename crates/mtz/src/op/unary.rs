//! What all operators on single numbers have in common: the output has the input's shape and every axis passes through.

/// An operator without parameters that applies `$f` to each number and has the derivative `$df` of (x, y).
macro_rules! unary_operator {
    ($(#[$doc:meta])* $name:ident, $f:expr, $df:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name;

        impl crate::op::Operator for $name {
            const NAME: &'static str = stringify!($name);
            const INPUTS: (usize, usize) = (1, 1);

            fn read(_node: &mut crate::op::node::NodeSpec) -> crate::error::Result<Self> {
                Ok(Self)
            }

            crate::op::unary::elementwise!($f, $df);
        }
    };
}

/// Shape rule, forward and backward pass and links of an operator that applies `$f` to each number x, giving y, with
/// the derivative `$df` of (x, y).
macro_rules! elementwise {
    ($f:expr, $df:expr) => {
        fn shape(&self, inputs: &crate::op::Shapes) -> crate::error::Result<crate::tensor::Shape> {
            inputs.get(0).cloned()
        }

        fn forward(&self, inputs: &crate::op::Inputs, out: crate::tensor::ViewMut) {
            let f = $f;
            crate::kernel::map(inputs.get(0).data, out.data, |x| f(self, x));
        }

        fn backward(&self, pass: &crate::op::Pass, gradients: &mut crate::op::Gradients) {
            let derivative = $df;
            if let Some(gradient) = gradients.get(0) {
                let x = pass.inputs.get(0).data;
                crate::kernel::map3_into(
                    x,
                    pass.output.data,
                    pass.grad.data,
                    gradient.data,
                    gradient.add,
                    |x, y, g| g * derivative(self, x, y),
                );
            }
        }

        fn links(&self, _inputs: &[&[usize]], output: &[usize]) -> Vec<crate::op::axes::AxisLink> {
            crate::op::axes::through(0, output.len(), |_| false)
        }
    };
}

pub(crate) use {elementwise, unary_operator};
