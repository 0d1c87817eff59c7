package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

const module = "github.com/steledb/stele/"

// block is a run of statements that are executed together.
type block struct {
	file       string // relative to the root of the source tree
	start, end int    // lines
	statements int
	reached    bool
}

// pkg returns the block's package, relative to the module.
func (b *block) pkg() string { return path.Dir(b.file) }

// parse reads a profile in the text format of go tool covdata. It returns the blocks of the packages
// that keep accepts, each once, by file and line.
func parse(r io.Reader, keep func(pkg string) bool) ([]block, error) {
	found := map[string]*block{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		place, counts, ok := strings.Cut(lines.Text(), " ")
		if !ok || place == "mode:" {
			continue
		}
		b, err := parseBlock(place, counts)
		if err != nil {
			return nil, err
		}
		if !keep(b.pkg()) {
			continue
		}
		if known := found[place]; known != nil {
			known.reached = known.reached || b.reached
			continue
		}
		found[place] = &b
	}
	var all []block
	for _, b := range found {
		all = append(all, *b)
	}
	slices.SortFunc(all, func(a, b block) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
	return all, lines.Err()
}

// parseBlock parses "module/file.go:12.3,14.5" and "2 1".
func parseBlock(place, counts string) (b block, err error) {
	name, lines, _ := strings.Cut(place, ".go:")
	b.file = strings.TrimPrefix(name, module) + ".go"
	var column, executed int
	if _, err = fmt.Sscanf(lines, "%d.%d,%d.%d", &b.start, &column, &b.end, &column); err == nil {
		_, err = fmt.Sscanf(counts, "%d %d", &b.statements, &executed)
	}
	if err != nil {
		return b, fmt.Errorf("parse %q: %w", place, err)
	}
	b.reached = executed > 0
	return b, nil
}
