package rows

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// parseFilter parses the value of --filter: an array as docs/rpc.md specifies, in JSON. Strings stand
// for bytes; with escaped, they contain the escapes of unescape.
func parseFilter(text string, escaped bool) (table.Filter, error) {
	const hint = `such as '["chain", ["family", "anchor"], ["versions", 1]]'; "Filters" in docs/rpc.md lists all of them`
	in := json.NewDecoder(strings.NewReader(text))
	in.UseNumber() // integers above 2^53 stay exact
	var v any
	if err := in.Decode(&v); err != nil {
		return nil, cli.Usagef(hint, "--filter is not JSON: %w", err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, cli.Usagef(hint, "--filter has more than one JSON value")
	}
	e := wire.GetEncoder()
	defer e.Release()
	if err := appendJSONValue(e, v, escaped); err != nil {
		return nil, err
	}
	d := wire.NewDecoder(e.Bytes())
	f, err := table.DecodeFilter(&d, nil)
	if err != nil {
		return nil, cli.Usagef(hint, "--filter: %w", err)
	}
	if f == nil {
		return nil, cli.Usagef(hint, "--filter is null")
	}
	return f, nil
}

// appendJSONValue appends a decoded JSON value. Its depth is bounded by json.Decoder.
func appendJSONValue(e *wire.Encoder, v any, escaped bool) error {
	switch v := v.(type) {
	case nil:
		e.Nil()
	case bool:
		e.Bool(v)
	case string:
		if escaped {
			s, err := cli.Unescape(v)
			if err != nil {
				return err
			}
			v = s
		}
		e.Str(v)
	case json.Number:
		if n, err := v.Int64(); err == nil {
			e.Int(n)
			return nil
		}
		f, err := v.Float64()
		if err != nil {
			return cli.Usagef("", "--filter: number %s is too large", v)
		}
		e.Float(f)
	case []any:
		e.Array(len(v))
		for _, x := range v {
			if err := appendJSONValue(e, x, escaped); err != nil {
				return err
			}
		}
	case map[string]any:
		e.Map(len(v))
		for name, x := range v {
			e.Str(name)
			if err := appendJSONValue(e, x, escaped); err != nil {
				return err
			}
		}
	}
	return nil
}
