"""What every test of a public report shares."""

import torch
import torch._dynamo  # the first hook imports it; not while a test has replaced parts of torch

torch.set_num_threads(1)  # so that two workers fit two cores
