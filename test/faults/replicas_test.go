package faults

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/tablet"
)

// Files are parsed here as the documentation of package blobfs/local specifies them, without the
// code that writes them.
const (
	pageBytes   = 4096
	chunkBytes  = 64 << 10
	footerBytes = 64
	frameBytes  = 40
)

// extent is an extent in use, of a blob or of a log.
type extent struct {
	of     string // id of the blob or log
	number uint64 // index in the blob, or number in the log
	log    bool
	length int64  // of a log's extent: required bytes of frames
	crc    uint32 // of a blob's extent: of its table of checksums
}

func (x extent) String() string {
	if x.log {
		return fmt.Sprintf("extent %d of log %s", x.number, x.of)
	}
	return fmt.Sprintf("extent %d of blob %s", x.number, x.of)
}

// needed returns the extents of all SSTables of tablets, blobs and commit logs.
func needed(ctx context.Context, lib *session.Client, rows *client.Client) (all []extent, err error) {
	metas, err := tabletMetas(ctx, lib, rows)
	if err != nil {
		return nil, err
	}
	for _, b := range metas {
		m, err := tablet.DecodeMeta(b)
		if err != nil {
			return nil, err
		}
		for _, g := range m.Groups {
			for _, file := range g.Files {
				all = append(all, extentsOf(file.Handle)...)
			}
		}
	}
	blobs, err := list(ctx, lib, "/blobs", 0)
	if err != nil {
		return nil, err
	}
	for _, f := range blobs {
		d := wire.NewDecoder(f.Data)
		d.Array()
		for range 3 { // version, name and time
			d.Skip()
		}
		h := blobfs.DecodeHandle(&d)
		if d.Err() != nil {
			return nil, d.Err()
		}
		all = append(all, extentsOf(h)...)
	}
	logs, err := list(ctx, lib, "/logs", 1)
	if err != nil {
		return nil, err
	}
	for _, f := range logs {
		l, err := replog.DecodeList(f.Data)
		if err != nil {
			return nil, err
		}
		for _, x := range l.Extents {
			all = append(all, extent{of: path.Base(f.Path), number: x.Seq, log: true, length: max(0, x.Length)})
		}
	}
	return all, nil
}

// tabletMetas returns the metadata of all tablets in METADATA and in the root's file.
func tabletMetas(ctx context.Context, lib *session.Client, rows *client.Client) (metas [][]byte, err error) {
	f, err := lib.Get(ctx, metadata.RootPath)
	if err != nil {
		return nil, err
	}
	root, err := metadata.DecodeRoot(f.Data, f.Generation)
	if err != nil {
		return nil, err
	}
	metas = append(metas, root.Meta)
	scan := rows.Table(metadata.Name).Scan(ctx, client.Filter(metadata.Rows()))
	defer scan.Close()
	for scan.Next() {
		r, err := metadata.Decode(scan.Row())
		if err != nil {
			return nil, err
		}
		metas = append(metas, r.Meta)
	}
	return metas, scan.Err()
}

func extentsOf(h blobfs.Handle) (all []extent) {
	for _, x := range h.Extents {
		all = append(all, extent{of: h.ID.String(), number: uint64(x.Index), crc: x.CRC})
	}
	return all
}

// list returns the files the given number of directories below a directory.
func list(ctx context.Context, lib *session.Client, dir string, below int) (all []api.File, err error) {
	var walk func(string, int) error
	walk = func(dir string, depth int) error {
		stats, err := lib.List(ctx, dir)
		if errors.Is(err, api.ErrNotFound) {
			return nil
		}
		for _, st := range stats {
			if err != nil {
				break
			}
			if depth > 0 {
				err = walk(st.Path, depth-1)
				continue
			}
			f, gerr := lib.Get(ctx, st.Path)
			if errors.Is(gerr, api.ErrNotFound) {
				continue // it was removed meanwhile
			}
			all, err = append(all, f), gerr
		}
		return err
	}
	return all, walk(dir, below)
}

// copies returns the good replicas of an extent on a node: their files.
func (n *node) copies(x extent) (good []string, err error) {
	for _, d := range n.disks {
		blobs, logs, err := d.files()
		if err != nil {
			return nil, err
		}
		names, is := blobs, goodExtent
		if x.log {
			names, is = logs, goodReplica
		}
		for _, name := range names {
			if !x.log && !strings.HasPrefix(filepath.Base(name), fmt.Sprintf("%s.%d", x.of, x.number)) {
				continue
			}
			ok, err := is(name, x)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			if ok {
				good = append(good, name)
			}
		}
	}
	return good, nil
}

// verifyAll makes nodes read all replicas of all blobs.
func verifyAll(ctx context.Context, db *client.Client) error {
	for after := ""; ; {
		page, err := db.Blobs().List(ctx, after, true)
		if err != nil {
			return err
		}
		for _, b := range page.Blobs {
			if _, err := db.Blobs().Stat(ctx, b.ID, 0, 0, true); err != nil && !errors.Is(err, client.ErrNoBlob) {
				return err
			}
		}
		if after = page.Next; after == "" {
			return nil
		}
	}
}

// short returns an error if an extent in use has too few good replicas. Replicas of logs are not
// restored, as their extents are soon released.
func (c *cluster) short(ctx context.Context, lib *session.Client, rows *client.Client) error {
	all, err := needed(ctx, lib, rows)
	if err != nil {
		return err
	}
	for _, x := range all {
		holders, err := c.holders(x)
		if err != nil {
			return err
		}
		want := 3
		if x.log {
			want = 1
		}
		if len(holders) < want {
			return fmt.Errorf("%v has good replicas on %v, want %d", x, holders, want)
		}
	}
	return nil
}

// holders returns the nodes that have a good replica of an extent.
func (c *cluster) holders(x extent) (all []*node, err error) {
	for _, n := range c.nodes {
		good, err := n.copies(x)
		if err != nil {
			return nil, err
		}
		if len(good) > 0 {
			all = append(all, n)
		}
	}
	return all, nil
}

// goodExtent reports whether a file is this extent of a blob, complete.
func goodExtent(name string, x extent) (bool, error) {
	base, _, _ := strings.Cut(filepath.Base(name), "of")
	if base != fmt.Sprintf("%s.%d", x.of, x.number) {
		return false, nil
	}
	b, err := os.ReadFile(name)
	if err != nil || len(b) < pageBytes+footerBytes {
		return false, err
	}
	le := binary.LittleEndian
	header, footer := b[:pageBytes], b[len(b)-footerBytes:]
	length := int64(le.Uint64(footer[32:]))
	chunks := (length + chunkBytes - 1) / chunkBytes
	if crc.Sum(header[:pageBytes-4]) != le.Uint32(header[pageBytes-4:]) || crc.Sum(footer[:60]) != le.Uint32(footer[60:]) ||
		int64(len(b)) != pageBytes+length+4*chunks+footerBytes || le.Uint32(footer[40:]) != x.crc {
		return false, nil
	}
	payload, table := b[pageBytes:pageBytes+length], b[pageBytes+length:len(b)-footerBytes]
	if crc.Sum(table) != x.crc {
		return false, nil
	}
	for i, chunk := range slices.Collect(slices.Chunk(payload, chunkBytes)) {
		if crc.Sum(chunk) != le.Uint32(table[4*i:]) {
			return false, nil
		}
	}
	return true, nil
}

// goodReplica reports whether a file is a replica of this extent of a log, with all frames that it
// must have.
func goodReplica(name string, x extent) (bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	page := make([]byte, pageBytes)
	if _, err := io.ReadFull(f, page); err != nil {
		return false, err
	}
	h := replicaHeader(page)
	if h == nil || fmt.Sprintf("%x", h[32:48]) != x.of || binary.LittleEndian.Uint64(h[48:]) != x.number {
		return false, nil
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return false, err
	}
	at := replicaFrames(b, h)
	return at[len(at)-1]-pageBytes >= x.length, nil
}

// replicaHeader returns the current header of a replica of a log's extent, or nil.
func replicaHeader(b []byte) (best []byte) {
	le := binary.LittleEndian
	for _, at := range []int{0, 2048} {
		if len(b) < pageBytes {
			return nil
		}
		h := b[at : at+512]
		if !bytes.HasPrefix(h, []byte("STELELOG")) || crc.Sum(h[:508]) != le.Uint32(h[508:]) || le.Uint32(h[12:]) != 3 {
			continue
		}
		if best == nil || le.Uint64(h[16:]) > le.Uint64(best[16:]) {
			best = h
		}
	}
	return best
}

// replicaFrames returns where the good frames of a replica begin, and where the last one ends.
func replicaFrames(b, header []byte) (at []int64) {
	le := binary.LittleEndian
	next := int64(pageBytes)
	for {
		at = append(at, next)
		if next+frameBytes > int64(len(b)) {
			return at
		}
		f := b[next:]
		size := (int64(le.Uint32(f[8:])) + frameBytes + pageBytes - 1) / pageBytes * pageBytes
		if !bytes.Equal(f[24:32], header[80:88]) || size > int64(len(f)) || crc.Sum(f[4:size]) != le.Uint32(f) {
			return at
		}
		next += size
	}
}
