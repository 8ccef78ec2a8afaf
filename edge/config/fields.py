"""What every file's models are made of: strict, frozen values and the names that they use."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Dim = Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]
BundlePath = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*$")
]
Level = Literal["disabled", "basic", "extended", "all"]


class Strict(BaseModel):
    """Frozen; a key that is not declared is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
