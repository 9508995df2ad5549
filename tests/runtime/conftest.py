"""What every test of the runtime shares: one thread, so that two workers fit two cores."""

import torch

torch.set_num_threads(1)
