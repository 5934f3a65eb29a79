"""The two ways a run can end that are nobody's bug."""


class UserError(Exception):
    """A mistake the user can mend: the message names the field or file, the value, the reason and the way out."""


class Diverged(Exception):
    """The training loss became infinite or NaN; the recipe is at fault, not the machine."""
