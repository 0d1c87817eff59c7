package s3store

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"strconv"

	"github.com/minio/minio-go/v7"
)

const (
	tempDir = "tmp"
	// partBytes is the size of a part: 16 MiB bound the memory of a call, and 10,000 parts make 156 GiB. Larger objects have larger parts.
	partBytes = 16 << 20
	partsMax  = 10_000
	// copyBytesMax is the largest object that a server copies by one request.
	copyBytesMax = 5 << 30
)

// Create implements backupdir.Store.
func (s *Store) Create(ctx context.Context, size int64, absent bool, write func(w io.Writer) (string, error)) error {
	if size <= s.part {
		var b bytes.Buffer
		b.Grow(int(size))
		name, err := write(&b)
		if err != nil {
			return err
		}
		return s.put(ctx, name, absent, b.Bytes())
	}
	return s.upload(ctx, size, write)
}

// sums returns the checksums of the bytes of a request: the server rejects it if other bytes arrive.
func sums(p []byte) (md5Base64, sha256Hex string) {
	m, h := md5.Sum(p), sha256.Sum256(p)
	return base64.StdEncoding.EncodeToString(m[:]), hex.EncodeToString(h[:])
}

// put stores an object by one request. An earlier attempt at one that must be absent may have stored it, and its answer be lost.
func (s *Store) put(ctx context.Context, name string, absent bool, p []byte) error {
	o := minio.PutObjectOptions{DisableContentSha256: true} // in chunks: the whole request has its sum
	if absent {
		o.SetMatchETagExcept("*")
	}
	m, h := sums(p)
	_, err := s.core.PutObject(ctx, s.bucket, s.key(name), bytes.NewReader(p), int64(len(p)), m, h, o)
	err = s.failure("write", name, err)
	if absent && errors.Is(err, fs.ErrExist) {
		if now, getErr := s.get(ctx, name); getErr == nil && bytes.Equal(now, p) {
			return nil
		}
	}
	return err
}

// get returns a small object.
func (s *Store) get(ctx context.Context, name string) ([]byte, error) {
	r, size, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > partBytes {
		return nil, &Error{"read", s.Location(name), "", fmt.Errorf("it has %d bytes", size)}
	}
	p := make([]byte, size)
	_, err = io.ReadFull(r, p)
	return p, err
}

// upload stores an object in parts under a temporary name, and has the server copy it to its name.
func (s *Store) upload(ctx context.Context, size int64, write func(w io.Writer) (string, error)) error {
	temp := path.Join(tempDir, strconv.FormatUint(rand.Uint64(), 36))
	id, err := s.core.NewMultipartUpload(ctx, s.bucket, s.key(temp), minio.PutObjectOptions{})
	if err != nil {
		return s.failure("begin an upload to", temp, err)
	}
	u := &uploading{s: s, ctx: ctx, temp: temp, id: id, part: make([]byte, 0, max(s.part, (size+partsMax-1)/partsMax))}
	name, err := write(u)
	if err == nil {
		err = u.finish()
	}
	if err != nil {
		_ = s.core.AbortMultipartUpload(context.WithoutCancel(ctx), s.bucket, s.key(temp), id) // else Clean does it
		return err
	}
	err = s.rename(ctx, temp, name, size)
	if removed := s.Remove(context.WithoutCancel(ctx), temp); err == nil {
		err = removed
	}
	return err
}

// uploading is an upload in parts. It implements io.Writer.
type uploading struct {
	s     *Store
	ctx   context.Context // of the call of upload
	temp  string
	id    string
	part  []byte
	parts []minio.CompletePart
}

// Write implements io.Writer. A full part is sent with the next byte.
func (u *uploading) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if len(u.part) == cap(u.part) {
			if err := u.send(); err != nil {
				return n, err
			}
		}
		m := min(len(p)-n, cap(u.part)-len(u.part))
		u.part = append(u.part, p[n:n+m]...)
		n += m
	}
	return n, nil
}

func (u *uploading) send() error {
	number := len(u.parts) + 1
	m, h := sums(u.part)
	o := minio.PutObjectPartOptions{Md5Base64: m, Sha256Hex: h, DisableContentSha256: true}
	sent, err := u.s.core.PutObjectPart(u.ctx, u.s.bucket, u.s.key(u.temp), u.id, number, bytes.NewReader(u.part), int64(len(u.part)), o)
	if err != nil {
		return u.s.failure("write a part of", u.temp, err)
	}
	u.parts = append(u.parts, minio.CompletePart{PartNumber: number, ETag: sent.ETag})
	u.part = u.part[:0]
	return nil
}

func (u *uploading) finish() error {
	if err := u.send(); err != nil {
		return err
	}
	_, err := u.s.core.CompleteMultipartUpload(u.ctx, u.s.bucket, u.s.key(u.temp), u.id, u.parts, minio.PutObjectOptions{})
	return u.s.failure("complete the upload of", u.temp, err)
}

// rename copies an object to its name, and checks its size.
func (s *Store) rename(ctx context.Context, temp, name string, size int64) error {
	from, to := minio.CopySrcOptions{Bucket: s.bucket, Object: s.key(temp)}, minio.CopyDestOptions{Bucket: s.bucket, Object: s.key(name)}
	var err error
	if size <= copyBytesMax {
		_, err = s.core.Client.CopyObject(ctx, to, from)
	} else {
		_, err = s.core.Client.ComposeObject(ctx, to, from)
	}
	if err != nil {
		return s.failure("copy an upload to", name, err)
	}
	got, err := s.core.StatObject(ctx, s.bucket, s.key(name), minio.StatObjectOptions{})
	if err == nil && got.Size != size {
		return &Error{"write", s.Location(name), "retry", fmt.Errorf("the server has %d of %d bytes", got.Size, size)}
	}
	return s.failure("read the size of", name, err)
}
