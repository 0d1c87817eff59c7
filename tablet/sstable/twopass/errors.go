package twopass

import "errors"

// ErrCorrupt means that bytes are no block, or no dictionary, of this format,
// or not one of the length that was asked for.
var ErrCorrupt = errors.New("malformed two-pass block")

// ErrNoDict means that a block was made with a dictionary, or a generation of
// its tables, which is not there.
var ErrNoDict = errors.New("two-pass block without its dictionary")

// ErrTooLarge means that a block is said to be above BlockBytesMax.
var ErrTooLarge = errors.New("two-pass block above 512 MiB")
