package s3store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// Scheme begins the locations of buckets.
const Scheme = "s3://"

// Config names a server and its access.
type Config struct {
	// Endpoint is the URL of the server. Empty means AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, or else Amazon's.
	Endpoint string
	// Getenv returns the environment; nil means os.Getenv.
	Getenv func(string) string
}

// attempts is the number of times that a request is made.
const attempts = 6

// pauseMin and pauseMax are pauses between attempts to continue a read.
const (
	pauseMin = 100 * time.Millisecond
	pauseMax = time.Second
)

// Store is a bucket, or the objects of one below a prefix. It is safe for concurrent use.
type Store struct {
	core   *minio.Core
	bucket string
	prefix string // "" or with a slash at its end
	part   int64
	timing lockTiming
	pause  time.Duration // after the first failure of a read
}

// Open returns the store at a location, s3://BUCKET or s3://BUCKET/PREFIX. The bucket must exist. Credentials are those of the environment
// (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), or else of the shared file (AWS_SHARED_CREDENTIALS_FILE, AWS_PROFILE). AWS_REGION and AWS_CA_BUNDLE
// apply, too. Errors: *Error, *UsageError.
func Open(ctx context.Context, location string, cfg Config) (*Store, error) {
	if cfg.Getenv == nil {
		cfg.Getenv = os.Getenv
	}
	bucket, prefix, err := parse(location)
	if err != nil {
		return nil, err
	}
	host, secure, err := cfg.endpoint()
	if err != nil {
		return nil, err
	}
	o := &minio.Options{Creds: cfg.credentials(), Secure: secure, Region: cfg.region(), MaxRetries: attempts, BucketLookup: minio.BucketLookupAuto}
	if host != amazon {
		o.BucketLookup = minio.BucketLookupPath // works without a name in DNS for each bucket
		if o.Region == "" {
			o.Region = "us-east-1"
		}
	}
	if o.Transport, err = cfg.transport(secure); err != nil {
		return nil, err
	}
	core, err := minio.NewCore(host, o)
	if err != nil {
		return nil, usage("the endpoint %s: %v", host, err)
	}
	s := &Store{core: core, bucket: bucket, prefix: prefix, part: partBytes, timing: lockTiming{lockLease, lockRenew}, pause: pauseMin}
	if v, err := o.Creds.GetWithContext(core.CredContext()); err != nil || v.AccessKeyID == "" {
		return nil, &Error{"open", s.Location(""), "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE and a credentials file", errors.Join(errors.New("no credentials are found"), err)}
	}
	if _, err := s.core.ListObjectsV2(bucket, s.prefix, "", "", "", 1); err != nil {
		return nil, s.failure("read", "", err)
	}
	return s, ctx.Err()
}

// parse returns the bucket and the prefix of a location.
func parse(location string) (bucket, prefix string, err error) {
	rest, ok := strings.CutPrefix(location, Scheme)
	bucket, prefix, _ = strings.Cut(rest, "/")
	if err := s3utils.CheckValidBucketName(bucket); !ok || err != nil {
		return "", "", usage("%.200q is not a bucket, such as s3://BUCKET/PREFIX", location)
	}
	if prefix = strings.Trim(prefix, "/"); prefix == "" {
		return bucket, "", nil
	}
	if path.Clean("/"+prefix) != "/"+prefix {
		return "", "", usage("the prefix %.200q has empty parts, or . or ..", prefix)
	}
	return bucket, prefix + "/", nil
}

const amazon = "s3.amazonaws.com"

// endpoint returns the host of the server, and whether it speaks TLS.
func (c *Config) endpoint() (host string, secure bool, err error) {
	at := c.Endpoint
	for _, name := range []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"} {
		if at == "" {
			at = c.Getenv(name)
		}
	}
	if at == "" {
		return amazon, true, nil
	}
	u, err := url.Parse(at)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.Path != "" && u.Path != "/" || u.User != nil {
		return "", false, usage("the endpoint %.200q is not a URL of a server, such as https://s3.example.com", at)
	}
	return u.Host, u.Scheme == "https", nil
}

func (c *Config) region() string {
	if r := c.Getenv("AWS_REGION"); r != "" {
		return r
	}
	return c.Getenv("AWS_DEFAULT_REGION")
}

// credentials returns those of the environment if it has any, else those of the shared file.
func (c *Config) credentials() *credentials.Credentials {
	if id := c.Getenv("AWS_ACCESS_KEY_ID"); id != "" {
		return credentials.NewStaticV4(id, c.Getenv("AWS_SECRET_ACCESS_KEY"), c.Getenv("AWS_SESSION_TOKEN"))
	}
	return credentials.NewFileAWSCredentials(c.Getenv("AWS_SHARED_CREDENTIALS_FILE"), c.Getenv("AWS_PROFILE"))
}

// transport returns how connections are made: with the authorities of AWS_CA_BUNDLE, if it is set.
func (c *Config) transport(secure bool) (http.RoundTripper, error) {
	t, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, err
	}
	bundle := c.Getenv("AWS_CA_BUNDLE")
	if bundle == "" {
		return t, nil
	}
	raw, err := os.ReadFile(bundle)
	if err != nil {
		return nil, usage("read AWS_CA_BUNDLE: %v", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, usage("AWS_CA_BUNDLE: %s has no certificate", bundle)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}

func (s *Store) key(name string) string { return s.prefix + name }

// Location implements backupdir.Store.
func (s *Store) Location(name string) string {
	return strings.TrimSuffix(Scheme+s.bucket+"/"+s.key(name), "/")
}

// Sync implements backupdir.Store: what the server has answered is durable.
func (s *Store) Sync(ctx context.Context, _ []string) error { return ctx.Err() }

// List implements backupdir.Store.
func (s *Store) List(ctx context.Context, dir string, each func(name string, size int64) error) error {
	for o := range s.core.Client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.key(dir + "/"), Recursive: true}) {
		if o.Err != nil {
			return s.failure("list", dir, o.Err)
		}
		if err := each(strings.TrimPrefix(o.Key, s.prefix), o.Size); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Remove implements backupdir.Store. One that does not exist is no error.
func (s *Store) Remove(ctx context.Context, name string) error {
	return s.failure("remove", name, s.core.Client.RemoveObject(ctx, s.bucket, s.key(name), minio.RemoveObjectOptions{}))
}

// Clean implements backupdir.Store.
func (s *Store) Clean(ctx context.Context) error {
	err := s.List(ctx, tempDir, func(name string, _ int64) error { return s.Remove(ctx, name) })
	if err != nil {
		return err
	}
	for u := range s.core.Client.ListIncompleteUploads(ctx, s.bucket, s.prefix, true) {
		if err := s.failure("list uploads below", "", u.Err); errors.Is(err, fs.ErrNotExist) {
			break // some servers answer so if there is none
		} else if err != nil {
			return err
		}
		err := s.core.AbortMultipartUpload(ctx, s.bucket, u.Key, u.UploadID)
		if err = s.failure("abort an upload of", strings.TrimPrefix(u.Key, s.prefix), err); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
