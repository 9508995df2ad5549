"""What every test of the runtime shares."""

import torch
import torch._dynamo  # the first hook imports it; not while a test has replaced parts of torch

from tests.runtime.poison import poisoned  # noqa: F401, a fixture
from tests.runtime.sanitized import sanitized  # noqa: F401, a fixture

torch.set_num_threads(1)  # so that two workers fit two cores
