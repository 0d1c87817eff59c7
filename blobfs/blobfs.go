package blobfs

import (
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/wire"
)

// These types are those of package local, which keeps extents on the disks of one node.
type (
	// ID names a blob or a log.
	ID = local.ID
	// Handle holds all that a reader needs to find a blob.
	Handle = local.Handle
	// ExtentRef is one sealed extent of a blob.
	ExtentRef = local.ExtentRef
	// BlobInfo is what a store records about a blob, without reading it.
	BlobInfo = local.BlobInfo
	// LogInfo is what a store records about a log.
	LogInfo = local.LogInfo
	// CorruptError locates bytes whose checksum is wrong.
	CorruptError = local.CorruptError
	// TooLargeError names the limit that was exceeded.
	TooLargeError = local.TooLargeError
	// ExtentID names an extent of a blob.
	ExtentID = local.ExtentID
	// Holders are the nodes that should have an extent.
	Holders = local.Holders
	// Problem is an error found by a verification.
	Problem = local.Problem

	// MasterKey encrypts data folders; MasterKeyID identifies a MasterKey.
	MasterKey   = local.MasterKey
	MasterKeyID = local.MasterKeyID
	// EncryptionError reports a data folder that does not match the configured master keys.
	EncryptionError = local.EncryptionError

	// Config configures where and how a Store keeps its extents.
	Config = local.Config
	// Writer writes a blob as a stream.
	Writer = local.Writer
	// Reader reads a blob.
	Reader = local.Reader
	// LogWriter appends to a log.
	LogWriter = local.LogWriter
	// LogReader recovers a log.
	LogReader = local.LogReader
)

// LogPayloadMax is the longest payload that Append accepts, in bytes.
const LogPayloadMax = local.LogPayloadMax

// MasterKeyBytes is the length of a master key. EncryptionMemory is the most memory, in bytes, that
// the buffers of an encrypted folder use.
const (
	MasterKeyBytes   = local.MasterKeyBytes
	EncryptionMemory = local.EncryptionMemory
)

// The errors of the store.
var (
	ErrNoBlob        = local.ErrNoBlob
	ErrNoLog         = local.ErrNoLog
	ErrLogExists     = local.ErrLogExists
	ErrDiskFull      = local.ErrDiskFull
	ErrFolderRetired = local.ErrFolderRetired
	ErrLogFailed     = local.ErrLogFailed
	ErrFenced        = local.ErrFenced
	ErrSealed        = local.ErrSealed
	ErrClosed        = local.ErrClosed
	ErrReadOnly      = local.ErrReadOnly
	ErrMasterKey     = local.ErrMasterKey
	ErrNotEncrypted  = local.ErrNotEncrypted
)

// CheckEncryption returns the *EncryptionError that opening a store would return. It changes
// nothing.
func CheckEncryption(cfg Config) error { return local.CheckEncryption(cfg) }

// NewID returns a new random ID.
func NewID() ID { return local.NewID() }

// ParseID parses the form that ID.String returns.
func ParseID(s string) (ID, error) { return local.ParseID(s) }

// AppendHandle appends h to e as one MessagePack value.
func AppendHandle(e *wire.Encoder, h Handle) { local.AppendHandle(e, h) }

// DecodeHandle decodes the form that AppendHandle writes.
func DecodeHandle(d *wire.Decoder) Handle { return local.DecodeHandle(d) }
