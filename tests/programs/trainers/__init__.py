"""Public training programs, each by its own command. A new one is a row of one of these lists."""

from trainers.examples import EXAMPLES
from trainers.language import LANGUAGE
from trainers.vision import VISION

TRAINERS = [*LANGUAGE, *VISION, *EXAMPLES]
