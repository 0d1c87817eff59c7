package tools

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/crc"
)

// extents is an SSTable on disk: a plain file, or the extents of a blob in order. It implements
// sstable.Source. Reads rely on the checksums of the SSTable; verify checks those of the extents.
// Sealed extents are immutable, so reading them does not disturb a running node.
type extents struct {
	name string
	size int64
	each []extentFile
}

// An extentFile holds the bytes of an SSTable from start on.
type extentFile struct {
	file     *os.File
	start    int64 // in the SSTable
	at, size int64 // in the file
}

// The layout of an extent file: see package blobfs/local.
const (
	extentMagic       = "STELEEXT"
	encryptedMagic    = "STELEENC" // of package internal/vfs
	extentHeaderBytes = 4096
	extentChunkBytes  = 64 << 10
	extentFooterBytes = 64
	extentLengthAt    = 32 // in the footer: the length of the payload
	extentTableSumAt  = 40 // in the footer: the checksum of the chunks' checksums
)

// openExtents opens a file, or the blob of an id whose extents are in dirs. If the file is an extent
// of a larger blob, it opens the whole blob, and looks for the other extents in the file's folder and
// in dirs.
func openExtents(name string, dirs []string) (*extents, error) {
	if id, err := blobfs.ParseID(name); err == nil {
		if _, err := os.Stat(name); err != nil {
			return openBlob(id, dirs)
		}
	}
	first, err := openExtent(name)
	if err != nil {
		return nil, err
	}
	if id, n, of, ok := extentNumber(name); ok && of != 1 {
		first.file.Close()
		if of == 0 {
			return openBlob(id, append([]string{filepath.Dir(name)}, dirs...))
		}
		return openParts(id, of, append([]string{filepath.Dir(name)}, dirs...), fmt.Sprintf("file %s is extent %d of %d", filepath.Base(name), n+1, of))
	}
	return &extents{name: name, size: first.size, each: []extentFile{first}}, nil
}

// extentNumber parses the name of an extent file: ID.INDEXofCOUNT for the last extent of a blob, and
// ID.INDEX for the others, for which count is 0.
func extentNumber(path string) (id blobfs.ID, index, count int, ok bool) {
	hex, rest, _ := strings.Cut(filepath.Base(path), ".")
	i, n, found := strings.Cut(rest, "of")
	id, err := blobfs.ParseID(hex)
	index, err1 := strconv.Atoi(i)
	if !found {
		return id, index, 0, errors.Join(err, err1) == nil && index >= 0
	}
	count, err2 := strconv.Atoi(n)
	return id, index, count, errors.Join(err, err1, err2) == nil && 0 <= index && index < count
}

// openBlob opens the blob with this id, whose extents are in dirs.
func openBlob(id blobfs.ID, dirs []string) (*extents, error) {
	if len(dirs) == 0 {
		return nil, cli.Usagef("add --data-dir DIR for each data folder of the node", "%s is a blob's id, and no data folder is given", id)
	}
	for _, dir := range extentDirs(dirs) {
		found, err := filepath.Glob(filepath.Join(dir, id.String()+".*of*"))
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			if _, _, count, ok := extentNumber(path); ok && count > 0 {
				return openParts(id, count, extentDirs(dirs), "blob "+id.String())
			}
		}
	}
	return nil, cli.NotFoundf("name all data folders of the node with --data-dir", "no extent of blob %s in %s", id, strings.Join(dirs, ", "))
}

// extentDirs returns the folders that may contain extents: those of a node's data folder, those of a
// block store's folder, and dirs themselves.
func extentDirs(dirs []string) (all []string) {
	for _, dir := range dirs {
		all = append(all, filepath.Join(dir, "blobs", "blobs"), filepath.Join(dir, "blobs"), dir)
	}
	return all
}

// openParts opens all extents of a blob.
func openParts(id blobfs.ID, count int, dirs []string, what string) (_ *extents, err error) {
	x := &extents{name: id.String()}
	defer func() {
		if err != nil {
			x.Close()
		}
	}()
	for i := range count {
		name := fmt.Sprintf("%s.%dof%d", id, i, count)
		part, err := openFirst(dirs, name)
		if errors.Is(err, fs.ErrNotExist) {
			part, err = openFirst(dirs, fmt.Sprintf("%s.%d", id, i))
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil, cli.NotFoundf("name all data folders of the node with --data-dir", "%s, and %s is not in %s", what, name, strings.Join(dirs, ", "))
		}
		if err != nil {
			return nil, err
		}
		part.start = x.size
		x.size += part.size
		x.each = append(x.each, part)
	}
	return x, nil
}

func openFirst(dirs []string, name string) (x extentFile, err error) {
	for _, dir := range dirs {
		if x, err = openExtent(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return x, err
		}
	}
	return x, err
}

// openExtent opens a file. If it is an extent file, reads are of its payload.
func openExtent(path string) (x extentFile, err error) {
	f, err := os.Open(path)
	if err != nil {
		return x, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return x, err
	}
	if info.IsDir() {
		return x, cli.Usagef(`check data folders by "stele check"`, "%s is a folder", path)
	}
	x = extentFile{file: f, size: info.Size()}
	head := make([]byte, len(extentMagic))
	_, err = f.ReadAt(head, 0)
	if err == nil && string(head) == encryptedMagic {
		return x, cli.Usagef(`"stele check DATA-DIR --encryption-key-file FILE" checks all SSTables of a node`, "%s is encrypted", path)
	}
	if err != nil || string(head) != extentMagic {
		return x, nil // a plain file; the SSTable reader checks its format
	}
	footer := make([]byte, extentFooterBytes)
	if _, err := f.ReadAt(footer, info.Size()-extentFooterBytes); err != nil {
		return x, cli.Damagedf("extent %s has no footer: %w", path, err)
	}
	length := int64(binary.LittleEndian.Uint64(footer[extentLengthAt:]))
	if length < 0 || length > info.Size() || extentHeaderBytes+length+4*chunksOf(length)+extentFooterBytes != info.Size() {
		return x, cli.Damagedf("extent %s is damaged at offset %d: its footer has a length of %d bytes, in a file of %d", path, info.Size()-extentFooterBytes, length, info.Size())
	}
	x.at, x.size = extentHeaderBytes, length
	return x, nil
}

func chunksOf(length int64) int64 { return (length + extentChunkBytes - 1) / extentChunkBytes }

// verify checks the checksums of the extents: header, chunks, checksum table and footer. It calls
// report for each mismatch.
func (x *extents) verify(report func(problemJSON)) error {
	buf := make([]byte, extentChunkBytes)
	for i := range x.each {
		if x.each[i].at == 0 {
			continue // a plain file
		}
		if err := x.each[i].verify(buf, report); err != nil {
			return err
		}
	}
	return nil
}

func (e *extentFile) verify(buf []byte, report func(problemJSON)) error {
	table := make([]byte, 4*chunksOf(e.size))
	tableAt := e.at + e.size
	footAt := tableAt + int64(len(table))
	footer := make([]byte, extentFooterBytes)
	if _, err := e.file.ReadAt(footer, footAt); err != nil {
		return err
	}
	if _, err := e.file.ReadAt(table, tableAt); err != nil {
		return err
	}
	check := func(what string, at int64, p, want []byte) {
		if got, want := crc.Sum(p), binary.LittleEndian.Uint32(want); got != want {
			report(problemJSON{e.file.Name(), at, fmt.Sprintf("%s of the extent: checksum is %08x, want %08x", what, got, want)})
		}
	}
	head := buf[:extentHeaderBytes]
	if _, err := e.file.ReadAt(head, 0); err != nil {
		return err
	}
	check("header", 0, head[:len(head)-4], head[len(head)-4:])
	for i := range chunksOf(e.size) {
		at := i * extentChunkBytes
		chunk := buf[:min(extentChunkBytes, e.size-at)]
		if _, err := e.file.ReadAt(chunk, e.at+at); err != nil {
			return err
		}
		check("chunk", e.at+at, chunk, table[4*i:])
	}
	check("table", tableAt, table, footer[extentTableSumAt:])
	check("footer", footAt, footer[:len(footer)-4], footer[len(footer)-4:])
	return nil
}

// ReadChecked implements sstable.Source: it fills p from offset off, and returns the result of ok.
func (x *extents) ReadChecked(p []byte, off int64, ok func(p []byte) error) error {
	for i := range x.each {
		e := &x.each[i]
		from, to := max(off, e.start), min(off+int64(len(p)), e.start+e.size)
		if from >= to {
			continue
		}
		if _, err := e.file.ReadAt(p[from-off:to-off], e.at+from-e.start); err != nil {
			return err
		}
	}
	if off < 0 || off+int64(len(p)) > x.size {
		return io.ErrUnexpectedEOF
	}
	return ok(p)
}

// Size returns the length of the SSTable in bytes.
func (x *extents) Size() int64 { return x.size }

// Close closes the files.
func (x *extents) Close() error {
	var errs []error
	for i := range x.each {
		errs = append(errs, x.each[i].file.Close())
	}
	return errors.Join(errs...)
}

// place returns the file that holds offset off of the SSTable, and the offset in that file.
func (x *extents) place(off int64) (file string, at int64) {
	for i := range x.each {
		if e := &x.each[i]; off >= e.start && off < e.start+e.size {
			return e.file.Name(), e.at + off - e.start
		}
	}
	return x.name, off
}
