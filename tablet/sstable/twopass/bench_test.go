package twopass

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

var (
	corpus      = flag.String("corpus", "", "folder of HTML pages that BenchmarkCorpus compresses")
	benchRounds = flag.Int("corpus-rounds", 3, "rounds of which BenchmarkCorpus takes the best")
)

const benchBlock = 64 << 10

// codec is a compression scheme for blocks that are decoded one by one.
type codec struct {
	name string
	// encode calls put with each block's stored form, in order, and returns the data shared by all.
	encode func(blocks [][]byte, put func(p []byte)) []byte
	// decoder returns a function that decodes one block into dst, which has its length.
	decoder func(shared []byte) func(dst, src []byte) error
}

// BenchmarkCorpus reports ratio and speed for blocks of 64 KiB of the pages of -corpus, in the
// order of their paths. Times are CPU times of one thread: other load on the machine affects the
// caches but not the time.
func BenchmarkCorpus(b *testing.B) {
	if *corpus == "" {
		b.Log("no -corpus=FOLDER of HTML pages: using a synthetic one")
	}
	for _, versions := range []int{1, 3} {
		text := pages(b, *corpus, versions)
		var blocks [][]byte
		for p := text; len(p) > 0; {
			n := min(benchBlock, len(p))
			blocks = append(blocks, p[:n:n])
			p = p[n:]
		}
		for _, c := range codecs() {
			b.Run(fmt.Sprintf("versions=%d/%s", versions, c.name), func(b *testing.B) {
				for b.Loop() {
					measure(b, c, blocks, len(text))
				}
			})
		}
	}
}

// cpuTime returns the CPU time of this thread.
func cpuTime() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var r syscall.Rusage
	if err := syscall.Getrusage(thread, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func measure(b *testing.B, c codec, blocks [][]byte, total int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var enc, dec time.Duration
	stored := make([]byte, 0, total/2)
	lens := make([]int, 0, len(blocks))
	var shared []byte
	for r := range *benchRounds {
		stored, lens = stored[:0], lens[:0]
		start := cpuTime()
		shared = c.encode(blocks, func(p []byte) {
			stored = append(stored, p...)
			lens = append(lens, len(p))
		})
		if d := cpuTime() - start; r == 0 || d < enc {
			enc = d
		}
	}
	decode := c.decoder(shared)
	dst := make([]byte, benchBlock)
	for r := range *benchRounds {
		at := 0
		start := cpuTime()
		for i, n := range lens {
			if err := decode(dst[:len(blocks[i])], stored[at:at+n]); err != nil {
				b.Fatal(err)
			}
			at += n
		}
		if d := cpuTime() - start; r == 0 || d < dec {
			dec = d
		}
	}
	at := 0
	for i, n := range lens {
		if err := decode(dst[:len(blocks[i])], stored[at:at+n]); err != nil || !bytes.Equal(dst[:len(blocks[i])], blocks[i]) {
			b.Fatalf("block %d is another after a round trip: %v", i, err)
		}
		at += n
	}
	mb := float64(total) / 1e6
	b.ReportMetric(float64(total)/float64(len(stored)+len(shared)), "ratio")
	b.ReportMetric(mb/enc.Seconds(), "encode-MB/s")
	b.ReportMetric(mb/dec.Seconds(), "decode-MB/s")
	b.ReportMetric(float64(len(shared))/1e3, "shared-KB")
	b.ReportMetric(0, "ns/op")
}

func codecs() []codec {
	return []codec{
		{"gzip-6", func(blocks [][]byte, put func([]byte)) []byte {
			var out bytes.Buffer
			w := gzip.NewWriter(&out)
			for _, p := range blocks {
				out.Reset()
				w.Reset(&out)
				w.Write(p)
				w.Close()
				put(out.Bytes())
			}
			return nil
		}, func([]byte) func(dst, src []byte) error {
			r := new(gzip.Reader)
			return func(dst, src []byte) error {
				if err := r.Reset(bytes.NewReader(src)); err != nil {
					return err
				}
				_, err := io.ReadFull(r, dst)
				return err
			}
		}},
		{"s2", func(blocks [][]byte, put func([]byte)) []byte {
			out := make([]byte, s2.MaxEncodedLen(benchBlock))
			for _, p := range blocks {
				put(s2.Encode(out, p))
			}
			return nil
		}, func([]byte) func(dst, src []byte) error {
			return func(dst, src []byte) error {
				_, err := s2.Decode(dst, src)
				return err
			}
		}},
		zstdCodec("zstd-fastest", zstd.SpeedFastest),
		zstdCodec("zstd", zstd.SpeedDefault),
		zstdCodec("zstd-better", zstd.SpeedBetterCompression),
		zstdDict("zstd-dict-32K", zstd.SpeedDefault, 32<<10),
		zstdDict("zstd-dict-112K", zstd.SpeedDefault, 112<<10),
		zstdDict("zstd-better-dict-32K", zstd.SpeedBetterCompression, 32<<10),
		zstdDict("zstd-better-dict-112K", zstd.SpeedBetterCompression, 112<<10),
		twoPass("two-pass", true),
		twoPass("two-pass-alone", false),
	}
}

func zstdCodec(name string, level zstd.EncoderLevel) codec {
	return codec{name, func(blocks [][]byte, put func([]byte)) []byte {
		zstdEncode(blocks, put, level)
		return nil
	}, func([]byte) func(dst, src []byte) error { return zstdDecode() }}
}

// zstdEncode calls put with each block, compressed by zstd as in an SSTable.
func zstdEncode(blocks [][]byte, put func([]byte), level zstd.EncoderLevel, opts ...zstd.EOption) {
	w, err := zstd.NewWriter(nil, append(opts, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithWindowSize(1<<20))...)
	if err != nil {
		panic(err)
	}
	var out []byte
	for _, p := range blocks {
		out = w.EncodeAll(p, out[:0])
		put(out)
	}
}

func zstdDecode(opts ...zstd.DOption) func(dst, src []byte) error {
	r, err := zstd.NewReader(nil, append(opts, zstd.WithDecoderConcurrency(1))...)
	if err != nil {
		panic(err)
	}
	return func(dst, src []byte) error {
		_, err := r.DecodeAll(src, dst[:0])
		return err
	}
}

// zstdStore compresses a dictionary as in a file; zstdOpen reverses it.
func zstdStore(dict []byte) (out []byte) {
	zstdEncode([][]byte{dict}, func(p []byte) { out = append(out, p...) }, zstd.SpeedDefault)
	return out
}

func zstdOpen(stored []byte) []byte {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	p, err := r.DecodeAll(stored, nil)
	if err != nil {
		panic(err)
	}
	return p
}

// zstdDict compresses with zstd and one dictionary of size bytes, learned from samples of all blocks
// before the first is encoded. Its text is selected by choose. klauspost's trainer is slower, and
// its dictionaries compress less.
func zstdDict(name string, level zstd.EncoderLevel, size int) codec {
	return codec{name, func(blocks [][]byte, put func([]byte)) []byte {
		samples := pick(blocks, chooseBytes)
		dict, err := zstd.BuildDict(zstd.BuildDictOptions{ID: 1, Contents: samples, Level: level,
			History: choose(nil, samples, size, func(int) {}), Offsets: [3]int{1, 4, 8}})
		if err != nil {
			panic(err)
		}
		zstdEncode(blocks, put, level, zstd.WithEncoderDict(dict))
		return zstdStore(dict)
	}, func(shared []byte) func(dst, src []byte) error {
		return zstdDecode(zstd.WithDecoderDicts(zstdOpen(shared)))
	}}
}

// twoPass learns like a writer of SSTables: from 16 MiB at a time, before they are encoded. The
// shared data is counted as stored in a file.
func twoPass(name string, learn bool) codec {
	return codec{name, func(blocks [][]byte, put func([]byte)) []byte {
		const window = 16 << 20 / benchBlock
		var e Encoder
		var out []byte
		for at := 0; at < len(blocks); at += window {
			some := blocks[at:min(at+window, len(blocks))]
			n := len(some) * benchBlock / LearnShare
			if at == 0 && len(some) == len(blocks) {
				e.TextMax = n
			}
			if learn && e.Wants() {
				e.Learn(some, e.TextBytes()+n)
			}
			for _, p := range some {
				out = e.Encode(out[:0], p)
				put(out)
			}
		}
		if !learn {
			return nil
		}
		return zstdStore(e.AppendDict(nil))
	}, func(shared []byte) func(dst, src []byte) error {
		var d *Dict
		if len(shared) > 0 {
			var err error
			if d, err = OpenDict(zstdOpen(shared)); err != nil {
				panic(err)
			}
		}
		return d.Decode
	}}
}

// pages returns the concatenated pages below folder, each in the given number of versions.
func pages(b *testing.B, folder string, versions int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	var text []byte
	if folder == "" {
		for range 200 {
			p := madePage(rng)
			for range versions {
				text = append(text, p...)
				p = edited(rng, p)
			}
		}
		return text
	}
	err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || !strings.HasSuffix(path, ".html") {
			return err
		}
		p, err := os.ReadFile(path)
		for range versions {
			text = append(text, p...)
			p = edited(rng, p)
		}
		return err
	})
	if err != nil || len(text) == 0 {
		b.Fatalf("no pages in %s: %v", folder, err)
	}
	return text
}

// edited returns a page as it may be crawled again: in about one place per 4 KiB, words were added,
// dropped or changed.
func edited(rng *rand.Rand, p []byte) []byte {
	var out []byte
	for len(p) > 0 {
		n := min(len(p), 1+rng.IntN(8<<10))
		out = append(out, p[:n]...)
		p = p[n:]
		switch rng.IntN(3) {
		case 0:
			out = fmt.Appendf(out, " as of %d", rng.Uint32())
		case 1:
			p = p[min(len(p), rng.IntN(40)):]
		case 2:
			k := min(len(p), 12)
			for range k {
				out = append(out, byte('a'+rng.IntN(26)))
			}
			p = p[k:]
		}
	}
	return out
}
