"""Three ways to lay KV caches out in a memory of so many tokens."""


class Contiguous:
    """One stretch a request, at the first place that is large enough.

    >>> arena = Contiguous(100)
    >>> [arena.take(key, 40) for key in "ab"], arena.take("c", 30), arena.free
    ([True, True], False, 20)
    >>> arena.give("a")
    >>> arena.take("c", 50), arena.free  # 60 are free, 40 and 20 apart
    (False, 60)
    """

    def __init__(self, capacity: int):
        self.capacity, self.at = capacity, {}

    @property
    def free(self) -> int:
        return self.capacity - sum(size for _, size in self.at.values())

    def take(self, key, tokens: int) -> bool:
        """Room for `tokens`, or False."""
        end = 0
        for start, size in [*sorted(self.at.values()), (self.capacity, 0)]:
            if start - end >= tokens:
                self.at[key] = (end, tokens)
                return True
            end = start + size
        return False

    def give(self, key) -> None:
        del self.at[key]


class Reserved(Contiguous):
    """A stretch of `longest` tokens for everyone: never fragmented, mostly empty.

    >>> slots = Reserved(100, longest=40)
    >>> [slots.take(key, 10) for key in "abc"], slots.free
    ([True, True, False], 20)
    """

    def __init__(self, capacity: int, longest: int):
        super().__init__(capacity)
        self.longest = longest

    def take(self, key, tokens: int) -> bool:
        return super().take(key, self.longest)


class Paged:
    """Blocks of `block` tokens and a table of them for each request.

    >>> pool = Paged(100, block=16)  # six blocks: what is left over is no block
    >>> pool.take("a", 40), pool.tables["a"], pool.free
    (True, [0, 1, 2], 48)
    >>> pool.grow("a", 49), pool.tables["a"], pool.take("b", 40)
    (True, [0, 1, 2, 3], False)
    """

    def __init__(self, capacity: int, block: int = 16):
        self.capacity, self.block = capacity, block
        self.stack = list(range(capacity // block))[::-1]
        self.tables: dict = {}

    @property
    def free(self) -> int:
        return len(self.stack) * self.block

    def take(self, key, tokens: int) -> bool:
        self.tables[key] = []
        if self.grow(key, tokens):
            return True
        del self.tables[key]
        return False

    def grow(self, key, tokens: int) -> bool:
        """Blocks until `tokens` fit; False, and nothing changed, where there are none."""
        table = self.tables[key]
        missing = -(-tokens // self.block) - len(table)
        if missing > len(self.stack):
            return False
        for _ in range(missing):
            table.append(self.stack.pop())
        return True

    def give(self, key) -> None:
        self.stack += self.tables.pop(key)[::-1]
