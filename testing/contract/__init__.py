"""The parts of `InterpreterContract`: programs of one step, and what every interpreter must answer.

Read `programs` first, then `messages`.
"""

from paceline.testing.contract.programs import Contract, ContractProgram, Interpreter

__all__ = ["Contract", "ContractProgram", "Interpreter"]
