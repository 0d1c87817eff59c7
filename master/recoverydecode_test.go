package master_test

import (
	"strings"
	"testing"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/master"
)

// TestRecoveryOfLaterVersions: values appended by a later version, to the recovery or to a piece,
// are skipped.
func TestRecoveryOfLaterVersions(t *testing.T) {
	log := blobfs.NewID()
	var e wire.Encoder
	e.Array(5)
	e.Uint(1)
	e.Str("n1.7")
	e.Array(2)
	for i := range int64(2) {
		e.Array(6)
		e.Bin(log[:])
		e.Int(i)
		e.Int(i + 1)
		e.Nil()
		e.Str("more")
		e.Array(0)
	}
	e.Str("more")
	e.Uint(7)
	r, err := master.DecodeRecovery(e.Bytes())
	if err != nil || r.Server != "n1.7" || len(r.Pieces) != 2 || r.Pieces[1].Log != log || r.Pieces[1].Start != 1 || r.Pieces[1].End != 2 {
		t.Errorf("read as %+v, %v", r, err)
	}
}

// TestRecoveryOfOtherForm: an unknown version, or a log id of another length, is an error that
// names the cause.
func TestRecoveryOfOtherForm(t *testing.T) {
	for want, write := range map[string]func(e *wire.Encoder){
		"unknown version 2": func(e *wire.Encoder) {
			e.Array(3)
			e.Uint(2)
			e.Str("n1.7")
			e.Array(0)
		},
		"decode recovery of n1.7: log id has 3 bytes": func(e *wire.Encoder) {
			e.Array(3)
			e.Uint(1)
			e.Str("n1.7")
			e.Array(1)
			e.Array(4)
			e.Bin([]byte("abc"))
			e.Int(0)
			e.Int(1)
			e.Nil()
		},
		"recovery: ": func(e *wire.Encoder) {
			e.Array(3)
			e.Uint(1)
			e.Str("n1.7")
			e.Array(1)
			e.Array(4)
			for range 4 {
				e.Nil()
			}
		},
	} {
		var e wire.Encoder
		write(&e)
		if r, err := master.DecodeRecovery(e.Bytes()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("read as %+v, %v, want an error with %q", r, err, want)
		}
	}
}
