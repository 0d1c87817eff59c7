package cli

import (
	"bytes"
	"strings"
)

// testApp returns an app that writes to memory.
func testApp() (a *App, out, errs *bytes.Buffer) {
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	return New(strings.NewReader(""), out, errs), out, errs
}
