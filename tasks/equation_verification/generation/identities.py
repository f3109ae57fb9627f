"""The identities that true equations are derived from.

These are the seeds of Arabshahi et al. 2018 that hold wherever both sides are defined: 142 of 147. Four of the others
take a root of ``1 - sin(a)^2`` or ``1 - cos(a)^2`` and hold for one sign only; one is false by a misprint. They are
written as the published data spell them: ``pi/2`` is ``pi*2^-1``, and a reciprocal is a power of -1.
"""

from __future__ import annotations

_COFUNCTION = {"sin": "cos", "cos": "sin", "sec": "csc", "csc": "sec", "tan": "cot", "cot": "tan"}
_RECIPROCAL = {"sin": "csc", "csc": "sin", "cos": "sec", "sec": "cos", "tan": "cot", "cot": "tan"}
_SHIFTED = ("sin", "cos", "tan", "csc", "sec", "cot")


def _sign(function: str, positive: str) -> str:
    return "" if function in positive.split() else "-"


RECIPROCALS_AND_PARITY: tuple[str, ...] = (
    *(f"{function}(a) = {other}(a)^-1" for function, other in _RECIPROCAL.items()),
    "tan(a) = sin(a)*cos(a)^-1",
    "sin(a)^2 + cos(a)^2 = 1",
    "tan(a)^2 + 1 = sec(a)^2",
    "1 + tan(a)^2 = sec(a)^2",
    "1 + cot(a)^2 = csc(a)^2",
    *(f"{function}(-a) = {_sign(function, 'cos sec')}{function}(a)" for function in _RECIPROCAL),
)

SHIFTS: tuple[str, ...] = (
    *(f"{function}(a) = {other}(pi*2^-1 - a)" for function, other in _COFUNCTION.items()),
    *(f"{function}(pi*2^-1 - a) = {_COFUNCTION[function]}(a)" for function in _SHIFTED),
    *(f"{function}(pi - a) = {_sign(function, 'sin csc')}{function}(a)" for function in _SHIFTED),
    *(f"{function}(a + pi*2^-1) = {_sign(function, 'sin csc')}{_COFUNCTION[function]}(a)" for function in _SHIFTED),
    *(f"{function}(a + pi) = {_sign(function, 'tan cot')}{function}(a)" for function in _SHIFTED),
    *(f"{function}(a + 2*pi) = {function}(a)" for function in _SHIFTED),
)

SUMS_AND_MULTIPLES: tuple[str, ...] = (
    "sin(a + b) = sin(a)*cos(b) + cos(a)*sin(b)",
    "sin(a - b) = sin(a)*cos(b) - cos(a)*sin(b)",
    "cos(a + b) = cos(a)*cos(b) - sin(a)*sin(b)",
    "cos(a - b) = cos(a)*cos(b) + sin(a)*sin(b)",
    "tan(a + b) = (tan(a) + tan(b))*(1 - tan(a)*tan(b))^-1",
    "tan(a - b) = (tan(a) - tan(b))*(1 + tan(a)*tan(b))^-1",
    "cot(a + b) = (cot(a)*cot(b) - 1)*(cot(a) + cot(b))^-1",
    "sin(2*a) = 2*(sin(a)*cos(a))",
    "cos(2*a) = cos(a)^2 - sin(a)^2",
    "cos(2*a) = 1 + (-2)*sin(a)^2",
    "cos(2*a) = 2*cos(a)^2 + (-1)",
    "tan(2*a) = (2*tan(a))*(1 - tan(a)^2)^-1",
    "cot(2*a) = (cot(a)^2 + (-1))*(2*cot(a))^-1",
    "2*sin(a)^2 = 1 - cos(2*a)",
    "sin(a)^2 = 2^-1 + (-1/2)*cos(2*a)",
    "2*cos(a)^2 = 1 + cos(2*a)",
    "cos(a)^2 = 2^-1 + 2^-1*cos(2*a)",
    "sin(3*a) = -sin(a)^3 + 3*(cos(a)^2*sin(a))",
    "sin(3*a) = -(4*sin(a)^3) + 3*sin(a)",
    "cos(3*a) = cos(a)^3 + (-3)*(sin(a)^2*cos(a))",
    "cos(3*a) = 4*cos(a)^3 + (-3)*cos(a)",
    "tan(3*a) = (3*tan(a) - tan(a)^3)*(1 + (-3)*tan(a)^2)^-1",
    "cot(3*a) = (3*cot(a) - cot(a)^3)*(1 + (-3)*cot(a)^2)^-1",
)

ARITHMETIC: tuple[str, ...] = (
    "1 + 1 = 2",
    "1*1 = 1",
    "0*1 = 0",
    "0*2 = 0",
    "0*3 = 0",
    "0*0 = 0",
    "1*(1/2) = 1/2",
    "4*(1/2) = 2",
    "3 + 1 = 4",
    "(1 + 1) + 1 = 3",
    "2 + 1 = 3",
    "(-1) + 3 = 2",
    "3 + (-1)*1 = 2",
    "4 + (-1)*2 = 2",
    "1 + (-1)*1 = 0",
    "0 + (-1)*0 = 0",
    "0 + 0 = 0",
    "(-1)*0 = 0",
    "0*(-1) = 0",
    "(-1)*1 = -1",
    "1*(-1) = -1",
    "(-1)*2 = -2",
    "2*(-1) = -2",
    "2^2 = 4",
    "1^1 = 1",
    "2^0 = 1",
    "3^0 = 1",
    "4^0 = 1",
    "1^(1/2) = 1",
    "4^(1/2) = 2",
)

ALGEBRA: tuple[str, ...] = (
    "0 + a = a",
    "0*a = 0",
    "1*a = a",
    "1^a = 1",
    "a^1 = a",
    "a^0 = 1",
    "a + a = 2*a",
    "(a + a) + a = 3*a",
    "a + a = a + a",
    "a + b = b + a",
    "(a + b) + c = a + (b + c)",
    "(a + c) + b = a + (b + c)",
    "(c + a) + b = b + (c + a)",
    "(c + a) + b = b + (a + c)",
    "(a + b) + c = b + (a + c)",
    "(a + b) + c = b + (c + a)",
    "1*(a + b) = a + b",
    "1*(a + b) = 1*a + 1*b",
    "2*(a + b) = 2*a + 2*b",
    "a*b = b*a",
    "(a*b)*c = a*(b*c)",
    "(a*c)*b = a*(b*c)",
    "(c*a)*b = b*(c*a)",
    "(c*a)*b = b*(a*c)",
    "(a*b)*c = b*(a*c)",
    "(a*b)*c = b*(c*a)",
)

REFLEXIVITY: tuple[str, ...] = tuple(
    f"{leaf} = {leaf}" for leaf in ("a", "0", "1", "2", "3", "4", "10", "-1", "1/2", "pi")
)

IDENTITIES: tuple[str, ...] = RECIPROCALS_AND_PARITY + SHIFTS + SUMS_AND_MULTIPLES + ARITHMETIC + ALGEBRA + REFLEXIVITY

BRANCHES: tuple[str, ...] = (
    "sin(a) = (1 - cos(a)^2)^(1/2)",
    "sin(a) = -(1 - cos(a)^2)^(1/2)",
    "cos(a) = (1 - sin(a)^2)^(1/2)",
    "cos(a) = -(1 - sin(a)^2)^(1/2)",
)
"""Seeds that hold for one sign of the root. Their results are tested."""
