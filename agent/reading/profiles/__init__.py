"""Where the time of a step went and what tensors were like: profilers, the recorder, gradients, replicas."""
