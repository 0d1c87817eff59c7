package server

// Sizes and types of HTTP/2's frames (RFC 9113, §4.1 and §6), and of gRPC's messages.
const (
	prefaceBytes     = 24 // of a client's connection
	frameHeaderBytes = 9

	frameData    = 0
	frameHeaders = 1
	frameReset   = 3

	flagEndStream = 0x1

	// messagePrefixBytes is what precedes each message in DATA frames.
	messagePrefixBytes = 5
)

// frames follows the frames of one direction of a connection, in whatever pieces it is read or written.
type frames struct {
	skip   int // bytes of the preface or a payload that are still to come
	header [frameHeaderBytes]byte
	have   int // bytes of the header that have come
}

// frame is the header of a frame.
type frame struct {
	bytes       int // of its payload
	kind, flags byte
	stream      uint32
}

// ends reports whether the sender's side of the stream ends with the frame.
func (f frame) ends() bool {
	return f.kind == frameReset || (f.kind == frameData || f.kind == frameHeaders) && f.flags&flagEndStream != 0
}

// follow calls seen for each frame whose header ends in b.
func (fs *frames) follow(b []byte, seen func(frame)) {
	for len(b) > 0 {
		if fs.skip > 0 {
			n := min(fs.skip, len(b))
			fs.skip -= n
			b = b[n:]
			continue
		}
		n := copy(fs.header[fs.have:], b)
		fs.have += n
		if b = b[n:]; fs.have == frameHeaderBytes {
			h := fs.header[:]
			fs.have, fs.skip = 0, int(h[0])<<16|int(h[1])<<8|int(h[2])
			seen(frame{fs.skip, h[3], h[4], uint32(h[5])<<24&0x7f000000 | uint32(h[6])<<16 | uint32(h[7])<<8 | uint32(h[8])})
		}
	}
}
