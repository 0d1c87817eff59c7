package blobfs

import (
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/wire"
)

// Many words of the store are those of package local, which keeps extents on the disks
// of one node.
type (
	// ID names a blob or a log.
	ID = local.ID
	// Handle is all that a reader needs to find a blob.
	Handle = local.Handle
	// ExtentRef is one extent of a blob, as it was sealed.
	ExtentRef = local.ExtentRef
	// BlobInfo is what a store knows of a blob without reading it.
	BlobInfo = local.BlobInfo
	// LogInfo is what a store knows of a log.
	LogInfo = local.LogInfo
	// CorruptError locates bytes that are not what was written.
	CorruptError = local.CorruptError
	// TooLargeError names a limit.
	TooLargeError = local.TooLargeError
	// ExtentID names an extent of a blob.
	ExtentID = local.ExtentID
	// Holders are the nodes that should have an extent.
	Holders = local.Holders
	// Problem is something that a verification found wrong.
	Problem = local.Problem

	// MasterKey encrypts data folders, MasterKeyID identifies one.
	MasterKey   = local.MasterKey
	MasterKeyID = local.MasterKeyID
	// EncryptionError is about a data folder and master keys that do not go together.
	EncryptionError = local.EncryptionError

	// Config says where and how a Store keeps its extents.
	Config = local.Config
	// Writer streams a blob in.
	Writer = local.Writer
	// Reader reads a blob.
	Reader = local.Reader
	// LogWriter appends to a log.
	LogWriter = local.LogWriter
	// LogReader recovers a log.
	LogReader = local.LogReader
)

// LogPayloadMax is the longest payload that Append takes, in bytes.
const LogPayloadMax = local.LogPayloadMax

// MasterKeyBytes is the length of a master key, EncryptionMemory the most memory that the buffers of an encrypted folder take.
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

// CheckEncryption returns the *EncryptionError that opening a store would, and changes nothing.
func CheckEncryption(cfg Config) error { return local.CheckEncryption(cfg) }

// NewID returns a new ID, of random bits.
func NewID() ID { return local.NewID() }

// ParseID reads what ID.String wrote.
func ParseID(s string) (ID, error) { return local.ParseID(s) }

// AppendHandle appends h to e as one MessagePack value.
func AppendHandle(e *wire.Encoder, h Handle) { local.AppendHandle(e, h) }

// DecodeHandle reads what AppendHandle wrote.
func DecodeHandle(d *wire.Decoder) Handle { return local.DecodeHandle(d) }
