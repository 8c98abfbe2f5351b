"""Exceptions that raise when they are asked what they are."""


class Argless(Exception):
    args = property(lambda _: 1 / 0)


class Causeless(Exception):
    __cause__ = property(lambda _: 1 / 0)


class Faceless(Exception):
    __class__ = property(lambda _: 1 / 0)


class Textless(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


def misprinted():
    problem = SyntaxError("m")
    problem.text, problem.lineno, problem.filename = 5, 1, "x"
    return problem


#: How each is made, by the name of its class.
ODD = {
    "Argless": lambda: Argless("x"),
    "Causeless": lambda: Causeless("x"),
    "Faceless": lambda: Faceless("x"),
    "Textless": lambda: Textless("x"),
    "SyntaxError": misprinted,
}


def raise_odd(name):
    problem = ODD[name]()
    raise problem


async def raise_odd_later(name):
    problem = ODD[name]()
    raise problem
