// Package clitest has what tests of commands share.
package clitest

import (
	"bytes"
	"strings"

	"github.com/steledb/stele/cmd/stele/cli"
)

// New returns an App without input that writes to memory.
func New() (a *cli.App, out, errs *bytes.Buffer) {
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	return cli.New(strings.NewReader(""), out, errs), out, errs
}
