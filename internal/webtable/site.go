package webtable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/steledb/stele/table"
)

// PageBytesMax is the maximum size of a page in bytes: 32 MiB, less than the limit of a cell.
const PageBytesMax = 32 << 20

// ErrTooLarge means that a page exceeds PageBytesMax.
var ErrTooLarge = errors.New("page is too large")

// A Site is a directory of pages and the URL under which they are published. It is safe for
// concurrent use.
type Site struct {
	dir  string
	base Address // ends with a slash
	root string  // prefix of the rows of its pages
}

// A Page is an HTML file of a Site.
type Page struct {
	File string // path within the directory, separated by slashes
	Address
	Timestamp int64 // modification time in µs since 1970; 0 if earlier
	Size      int64 // in bytes
}

// Open returns the Site of a directory. base is the URL of the directory: http or https, without
// query and fragment. A slash at its end is implied. Errors: ErrNoRow and others about base; those
// of the file system, including fs.ErrNotExist.
func Open(dir, base string) (*Site, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("base URL %s: has a query or a fragment", base)
	}
	if !strings.HasSuffix(u.Path, "/") {
		u = u.JoinPath("/")
	}
	s := &Site{}
	if s.base, err = AddressOf(u); err != nil {
		return nil, fmt.Errorf("base URL %q: %w", base, err)
	}
	s.root = strings.TrimSuffix(s.base.Row, "/") + "/"
	// WalkDir does not follow a symbolic link as its root.
	if s.dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	info, err := os.Stat(s.dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder", dir)
	}
	return s, err
}

// URL returns the URL of the directory.
func (s *Site) URL() string { return s.base.URL }

// Pages iterates over the pages in lexical order, directory by directory: files that end in .html,
// .htm or .xhtml. Symbolic links to files are followed, those to directories are not. An entry that
// cannot be read is yielded as an error with a Page that has only File, and the iteration
// continues.
func (s *Site) Pages() iter.Seq2[Page, error] {
	return func(yield func(Page, error) bool) {
		_ = filepath.WalkDir(s.dir, func(name string, entry fs.DirEntry, err error) error {
			file := s.within(name)
			if err == nil && (entry.IsDir() || !isPage(name)) {
				return nil
			}
			p := Page{File: file}
			if err == nil {
				p, err = s.page(file)
			}
			if errors.Is(err, errNoFile) {
				return nil
			}
			if !yield(p, err) {
				return fs.SkipAll
			}
			return nil
		})
	}
}

func (s *Site) within(name string) string {
	rel, err := filepath.Rel(s.dir, name)
	if err != nil {
		return filepath.ToSlash(name)
	}
	return filepath.ToSlash(rel)
}

func isPage(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".html", ".htm", ".xhtml":
		return true
	}
	return false
}

// errNoFile means that the name of a page belongs to a directory, a device or the like.
var errNoFile = errors.New("not a file")

func (s *Site) page(file string) (Page, error) {
	p := Page{File: file}
	info, err := os.Stat(s.path(file))
	if err != nil {
		return p, err
	}
	if !info.Mode().IsRegular() {
		return p, errNoFile
	}
	p.stamp(info)
	p.Address, err = s.addressOf(file)
	return p, err
}

func (s *Site) path(file string) string { return filepath.Join(s.dir, filepath.FromSlash(file)) }

func (p *Page) stamp(info fs.FileInfo) {
	p.Size = info.Size()
	p.Timestamp = max(info.ModTime().UnixMicro(), 0)
}

// addressOf returns the address of a file in the directory.
func (s *Site) addressOf(file string) (Address, error) {
	path := normalEscapes(strings.ReplaceAll(file, "%", "%25"), inPath)
	a := Address{URL: s.base.URL + path, Row: s.root + path}
	limits := table.DefaultLimits()
	if int64(len(a.Row)) > limits.RowKeyBytes || int64(len(a.URL)) > limits.QualifierBytes {
		return a, fmt.Errorf("%w: the URL of %s is %d bytes long", ErrNoRow, file, len(a.URL))
	}
	return a, nil
}

// Read returns a page's contents and sets its timestamp and size to those of the contents. Errors:
// ErrTooLarge, and those of the file system.
func (s *Site) Read(p *Page) ([]byte, error) {
	f, err := os.Open(s.path(p.File))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > PageBytesMax {
		return nil, fmt.Errorf("%s: %w: %d bytes, at most %d", p.File, ErrTooLarge, info.Size(), PageBytesMax)
	}
	contents := make([]byte, info.Size())
	n, err := io.ReadFull(f, contents)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	p.stamp(info)
	p.Size = int64(n)
	return contents[:n], nil
}

// served returns the address of the page that a web server would serve for a: the index page if
// a is a directory of the site that has one, otherwise a.
func (s *Site) served(a Address) Address {
	folder, ok := s.folder(a.Row)
	if !ok {
		return a
	}
	for _, name := range []string{"index.html", "index.htm"} {
		if p, err := s.page(folder + name); err == nil {
			return p.Address
		}
	}
	return a
}

// folder returns the directory of the site with the given row: empty, or with a slash at its end.
func (s *Site) folder(row string) (string, bool) {
	if row == strings.TrimSuffix(s.root, "/") && row == s.base.Row {
		return "", true // the site is a whole host, whose row has no slash
	}
	rest, ok := strings.CutPrefix(row, s.root)
	if !ok || rest != "" && !strings.HasSuffix(rest, "/") || strings.Contains(rest, "?") {
		return "", false
	}
	folder, err := url.PathUnescape(rest)
	if err != nil || folder != "" && !filepath.IsLocal(filepath.FromSlash(folder)) || strings.ContainsRune(folder, 0) {
		return "", false
	}
	return folder, true
}

// Total returns the number of pages and their total size, as far as they are readable, for progress
// reports. It ends early when stop returns true.
func (s *Site) Total(stop func() bool) (pages, bytes int64) {
	for p, err := range s.Pages() {
		if err == nil {
			pages++
			bytes += p.Size
		}
		if stop() {
			break
		}
	}
	return pages, bytes
}
