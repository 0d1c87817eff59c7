package s3store

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	"github.com/minio/minio-go/v7"
)

// Error is a request that a server of buckets has rejected, or did not answer.
type Error struct {
	Op, Location string
	// Remedy is what to do about it.
	Remedy string
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Location, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// UsageError is a location, an endpoint or a setting that is not valid.
type UsageError struct{ Text string }

func (e *UsageError) Error() string { return e.Text }

func usage(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// errCondition means that an object that must be absent exists.
var errCondition = fmt.Errorf("it exists: %w", fs.ErrExist)

// failure returns the error of a request for an object: an *Error, which is fs.ErrNotExist for one that is missing; nil for nil.
func (s *Store) failure(op, name string, err error) error {
	if err == nil {
		return nil
	}
	r := minio.ErrorResponse{}
	if !errors.As(err, &r) {
		return &Error{op, s.Location(name), "check that the server runs, and the address in --s3-endpoint", err}
	}
	cause := fmt.Errorf("the server answers %s (status %d): %s", r.Code, r.StatusCode, r.Message)
	return &Error{op, s.Location(name), s.remedy(&r), rename(&r, cause)}
}

// rename gives causes that callers distinguish their sentinels.
func rename(r *minio.ErrorResponse, cause error) error {
	switch {
	case r.Code == "NoSuchBucket":
		return errors.New("the bucket does not exist")
	case r.Code == minio.NoSuchKey, r.Code == "NoSuchUpload", r.StatusCode == http.StatusNotFound:
		return fmt.Errorf("it does not exist: %w", fs.ErrNotExist)
	case r.Code == minio.PreconditionFailed, r.StatusCode == http.StatusPreconditionFailed, r.Code == "ConditionalRequestConflict":
		return errCondition
	}
	return cause
}

// remedy returns what to do about an answer.
func (s *Store) remedy(r *minio.ErrorResponse) string {
	switch r.Code {
	case "NoSuchBucket":
		return fmt.Sprintf("create the bucket %s, or check its name and --s3-endpoint", s.bucket)
	case minio.AccessDenied, "AllAccessDisabled", "AccountProblem":
		return fmt.Sprintf("allow the access key to list the bucket %[1]s, and to get, put and delete objects in it", s.bucket)
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "ExpiredTokenException", "AuthorizationHeaderMalformed":
		return "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION, or the credentials file and AWS_PROFILE"
	case "RequestTimeTooSkewed":
		return "set the clock of this host"
	case "BadDigest", "XAmzContentSHA256Mismatch", "InvalidDigest":
		return "bytes were changed on their way: retry, and check proxies and the network"
	case minio.NotImplemented:
		return "use a server with conditional writes (If-None-Match) and multi-part uploads"
	}
	switch {
	case r.StatusCode == http.StatusForbidden:
		return fmt.Sprintf("check the credentials, and that they may use the bucket %s", s.bucket)
	case r.StatusCode >= http.StatusInternalServerError:
		return fmt.Sprintf("the server failed %d times: retry later, and look at its log", attempts)
	}
	return ""
}
