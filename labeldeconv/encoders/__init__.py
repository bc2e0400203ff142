"""Node encoders f(x; beta) (eqn:ne) and their tokens. Encoders never see graphs."""
