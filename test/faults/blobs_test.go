package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/steledb/stele/client"
)

// blobWriter stores blobs, reads them and deletes some. The contents of a blob follow from its
// name, which is unique.
type blobWriter struct {
	number int
	ledger *ledger
	file   *os.File
	fates  map[string]fate   // by name
	ids    map[string]string // of acknowledged blobs, by name
	names  []string          // of acknowledged blobs, in order
}

// blobLengthMax is more than one extent.
const blobLengthMax = 6 << 20

func blobOf(name string) []byte {
	seed := valueOf(name)
	r := rand.NewChaCha8([32]byte(seed[:32]))
	length := 1 + int(r.Uint64()%(300<<10))
	if seed[32]%8 == 0 {
		length = 1 + int(r.Uint64()%blobLengthMax)
	}
	b := make([]byte, length)
	_, _ = r.Read(b) // never fails
	return b
}

func (w *blobWriter) settle(name string, f fate, id string, err error) {
	w.fates[name] = f
	if _, err := fmt.Fprintf(w.file, "{\"At\":%d,\"Blob\":%q,\"Fate\":%q,\"ID\":%q,\"Error\":%q}\n", now(), name, f, id, fmt.Sprint(err)); err != nil {
		panic("write history: " + err.Error())
	}
}

// work stores, reads and deletes blobs through any of the nodes until the context ends.
func (w *blobWriter) work(ctx context.Context, conns []*client.Client, r *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		c := conns[r.IntN(len(conns))]
		call, cancel := context.WithTimeout(ctx, 10*time.Second)
		switch {
		case n%9 == 8 && len(w.names) > 2:
			w.remove(call, c, r.IntN(len(w.names)))
		case n%3 == 2 && len(w.names) > 0:
			w.read(call, c, w.names[r.IntN(len(w.names))], false)
		default:
			w.put(call, c, fmt.Sprintf("%d-%d", w.number, n))
		}
		cancel()
		pause(ctx, time.Duration(r.Int64N(int64(time.Second))))
	}
}

func (w *blobWriter) put(ctx context.Context, c *client.Client, name string) {
	w.settle(name, rowUnderWay, "", nil)
	info, err := c.Blobs().Put(ctx, name, bytes.NewReader(blobOf(name)))
	f, kind := outcomeOf(err)
	if err == nil {
		w.ids[name] = info.ID
		w.names = append(w.names, name)
	} else if f == rowRefused || !errors.Is(err, client.ErrAmbiguous) {
		f = rowRefused // no blob was named
	}
	w.settle(name, f, info.ID, err)
	w.ledger.count("blobs " + kind)
	if kind == "failed" {
		w.ledger.count(fmt.Sprintf("%q", err))
	}
}

func (w *blobWriter) remove(ctx context.Context, c *client.Client, i int) {
	name := w.names[i]
	w.names = append(w.names[:i:i], w.names[i+1:]...)
	w.settle(name, rowDeleting, w.ids[name], nil)
	err := c.Blobs().Delete(ctx, w.ids[name])
	if err == nil {
		w.settle(name, rowDeleted, w.ids[name], nil)
	}
	_, kind := outcomeOf(err)
	w.ledger.count("blob deletions " + kind)
}

// read reads an existing blob. A node that cannot be reached is an error only if must is set.
func (w *blobWriter) read(ctx context.Context, c *client.Client, name string, must bool) {
	var b bytes.Buffer
	_, err := c.Blobs().Get(ctx, w.ids[name], &b)
	_, kind := outcomeOf(err)
	switch {
	case err == nil && !bytes.Equal(b.Bytes(), blobOf(name)):
		w.ledger.violation("blob %s, named %s, is not what was stored", w.ids[name], name)
	case err != nil && (must || errors.Is(err, client.ErrCorrupt) || errors.Is(err, client.ErrNoBlob)):
		w.ledger.violation("read blob %s, named %s: %v", w.ids[name], name, err)
	case err == nil:
		w.ledger.count("blob reads")
	default:
		w.ledger.count("blob reads " + kind)
		if kind == "failed" {
			w.ledger.count(fmt.Sprintf("%q", err))
		}
	}
}

// check reads all blobs that must exist, and searches for others.
func (w *blobWriter) check(ctx context.Context, c *client.Client) (int, error) {
	for _, name := range w.names {
		w.read(ctx, c, name, true)
	}
	for after := ""; ; {
		page, err := c.Blobs().List(ctx, after, false)
		if err != nil {
			return 0, fmt.Errorf("list blobs: %w", err)
		}
		for _, b := range page.Blobs {
			if f, known := w.fates[b.Name]; !known || f == rowRefused || f == rowDeleted {
				w.ledger.violation("blob %s, named %s, is there: it was %s", b.ID, b.Name, f)
			}
		}
		if after = page.Next; after == "" {
			return len(w.names), nil
		}
	}
}
