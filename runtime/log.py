"""The runtime's log, under the name by which people know it."""

import logging

log = logging.getLogger("ringproof.runtime")
