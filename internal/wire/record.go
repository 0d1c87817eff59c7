package wire

import "fmt"

// BeginRecord begins to decode the content of a file: an array that begins with the version of its format. It must be of that version, and have at least so many
// values. more is the number of values beyond them, which later versions of the program have added. Errors name what. The Decoder retains b.
func BeginRecord(b []byte, what string, version uint64, least int) (d Decoder, more int, err error) {
	if n, err := Check(b, Limits{}); err != nil || n != len(b) {
		return d, 0, fmt.Errorf("%s: %d of %d bytes are a message: %v", what, n, len(b), err)
	}
	d = NewDecoder(b)
	n := d.Array()
	if v := d.Uint(); d.Err() == nil && (v != version || n < least) {
		return d, 0, fmt.Errorf("%s: %d values of version %d, want at least %d of version %d", what, n, v, least, version)
	}
	if d.Err() != nil {
		return d, 0, fmt.Errorf("%s: %w", what, d.Err())
	}
	return d, n - least, nil
}
