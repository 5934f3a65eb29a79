"""The two ways a run can end that are nobody's bug."""


class UserError(Exception):
    """A mistake the user can mend: the message names the field or file, the value, the reason and the way out."""


class Diverged(Exception):
    """The training loss became infinite or NaN; the recipe is at fault, not the machine."""


_PLAIN = {
    ", unable to parse string as an integer": "",
    ", unable to parse string as a number": "",
    " after validation": "",
    "a valid boolean": "true or false",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "text",
    "a valid list": "a list",
}


def plain_reason(message: str) -> str:
    """Pydantic's reason as half a sentence without a programmer's words."""
    for words, plain in _PLAIN.items():
        message = message.replace(words, plain)
    return message[:1].lower() + message[1:]
