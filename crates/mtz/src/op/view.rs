//! What operators have in common whose output is the input's numbers in another shape.

/// Forward and backward pass of such an operator: the numbers are handed on.
macro_rules! hand_numbers_on {
    () => {
        fn forward(&self, inputs: &$crate::op::Inputs, out: $crate::tensor::ViewMut) {
            out.data.copy_from_slice(inputs.get(0).data);
        }

        fn backward(&self, pass: &$crate::op::Pass, gradients: &mut $crate::op::Gradients) {
            if let Some(gradient) = gradients.get(0) {
                gradient.pass_on(pass.grad.data);
            }
        }

        fn is_view(&self) -> bool {
            true
        }
    };
}

pub(super) use hand_numbers_on;
