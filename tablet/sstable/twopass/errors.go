package twopass

import "errors"

// ErrCorrupt means that bytes are not a block, or not a dictionary, of this format, or not a block
// of the requested length.
var ErrCorrupt = errors.New("malformed two-pass block")

// ErrNoDict means that a block needs a dictionary, or a generation of tables, that is missing.
var ErrNoDict = errors.New("two-pass block without its dictionary")

// ErrTooLarge means that the requested length is above BlockBytesMax.
var ErrTooLarge = errors.New("two-pass block above 512 MiB")
