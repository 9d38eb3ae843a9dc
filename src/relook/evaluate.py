"""The paper's test-time cross-validation: temperature from one half, metrics on the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
