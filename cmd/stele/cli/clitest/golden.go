package clitest

import (
	"bytes"
	"flag"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// Golden compares what print prints with --json with the file testdata/NAME.json. The output of
// --json is a stable interface: a changed file is a changed interface.
func Golden(t *testing.T, name string, print func(a *cli.App) error) {
	t.Helper()
	a, out, _ := New()
	a.JSON = true
	if err := print(a); err != nil {
		t.Fatal(err)
	}
	if err := a.Out.Flush(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.MkdirAll("testdata", 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, out.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("%s:\n got %s\nwant %s", name, out.Bytes(), want)
	}
}

// A result is a result of the data API.
type result interface {
	Append(e *wire.Encoder)
	Decode(d *wire.Decoder) error
}

// Received encodes and decodes a result, as commands receive it from a node, in a time zone that is
// not UTC.
func Received[R result](t *testing.T, r R) R {
	t.Helper()
	local := time.Local
	time.Local = time.FixedZone("", 2*60*60)
	defer func() { time.Local = local }()
	d := wire.NewDecoder(wiretest.Encode(r.Append))
	if err := r.Decode(&d); err != nil {
		t.Fatal(err)
	}
	return r
}

// Fill sets each exported field of a struct to a value that depends on the field's name in JSON, or
// else its name in Go, so that no two fields are likely to be equal. Slices get one element. It
// returns v.
func Fill[T any](v *T) *T {
	fill(reflect.ValueOf(v).Elem(), "")
	return v
}

func fill(v reflect.Value, name string) {
	n := int64(crc32.ChecksumIEEE([]byte(name)) % 100_000)
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = time.UnixMilli(1_700_000_000_000 + n)
		return
	case *time.Duration:
		*x = time.Duration(n) * time.Millisecond
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("<" + name + ">")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(n)
	case reflect.Uint64:
		v.SetUint(uint64(n))
	case reflect.Float64:
		v.SetFloat(float64(n) / 8)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(name))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), name)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				fill(v.Field(i), cli.OrElse(tag, f.Name))
			}
		}
	default:
		panic("Fill: no value for a field of type " + v.Type().String())
	}
}
