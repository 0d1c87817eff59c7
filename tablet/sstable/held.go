package sstable

import "github.com/steledb/stele/tablet/sstable/twopass"

const (
	// learnMin is the minimum of data to learn from. Less hardly yields a dictionary that saves
	// its own size.
	learnMin = 256 << 10
	// heldRatio is the assumed compression ratio of held blocks.
	heldRatio = 4
)

// heldBlocks are data blocks that are buffered until the dictionary has learned from them. Their
// memory is reused.
type heldBlocks struct {
	raws, seps [][]byte
	warm       []bool
	bytes      int
	spare      [][]byte
}

func (h *heldBlocks) add(raw, sep []byte, warm bool) {
	h.raws = append(h.raws, h.clone(raw))
	h.seps = append(h.seps, append([]byte(nil), sep...))
	h.warm = append(h.warm, warm)
	h.bytes += len(raw)
}

func (h *heldBlocks) clone(p []byte) []byte {
	var to []byte
	if n := len(h.spare); n > 0 {
		to, h.spare = h.spare[n-1], h.spare[:n-1]
	}
	return append(to[:0], p...)
}

// release learns from the held blocks and writes them. all means that the file has no more blocks.
func (w *Writer) release(all bool) error {
	h := &w.held
	if len(h.raws) == 0 {
		return nil
	}
	if two := w.comp.two; h.bytes >= w.opts.learnMin {
		text := h.bytes / twopass.LearnShare
		if all && !two.HasDict() {
			two.TextMax = text
		}
		two.Learn(h.raws, two.TextBytes()+text)
	}
	for i, raw := range h.raws {
		if err := w.writeData(raw, h.seps[i], h.warm[i]); err != nil {
			return err
		}
	}
	if all || !w.comp.two.Wants() {
		w.held = heldBlocks{} // no more blocks are held: free the memory
		return nil
	}
	h.spare = append(h.spare, h.raws...)
	h.raws, h.seps, h.warm, h.bytes = h.raws[:0], h.seps[:0], h.warm[:0], 0
	return nil
}
