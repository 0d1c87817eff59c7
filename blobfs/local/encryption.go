package local

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/steledb/stele/internal/vfs"
)

const encryptionFile = "encryption"

// Reasons why a folder cannot be opened with the configured master keys, always within an
// *EncryptionError.
var (
	// ErrMasterKey means that the folder is encrypted and its master key is not configured.
	ErrMasterKey = errors.New("its master key is not configured")
	// ErrNotEncrypted means that a master key is configured for a folder with unencrypted data.
	ErrNotEncrypted = errors.New("it has unencrypted data")
)

// EncryptionError means that a data folder and the configured master keys do not match.
type EncryptionError struct {
	Folder string
	Needs  []MasterKeyID // the missing keys, if the folder is encrypted
	Given  []MasterKeyID
	Err    error // ErrMasterKey or ErrNotEncrypted
}

// Error implements error.
func (e *EncryptionError) Error() string {
	if errors.Is(e.Err, ErrNotEncrypted) {
		return fmt.Sprintf("data folder %s cannot be used with master key %s: %v", e.Folder, idList(e.Given), e.Err)
	}
	given := "none"
	if len(e.Given) > 0 {
		given = idList(e.Given)
	}
	return fmt.Sprintf("data folder %s is encrypted with master key %s: %v (given: %s)", e.Folder, idList(e.Needs), e.Err, given)
}

// Unwrap returns Err.
func (e *EncryptionError) Unwrap() error { return e.Err }

func idList(ids []MasterKeyID) string {
	var texts []string
	for _, id := range ids {
		texts = append(texts, id.String())
	}
	return strings.Join(texts, ", ")
}

// openEncryption enables encryption of the folder's extents and logs, if master keys are
// configured. A folder is encrypted from its creation or never: only a folder without data gets
// keys. If the first master key does not wrap the data keys, they are wrapped again by it and a new
// data key is added. *EncryptionError; *CorruptError if the key file is damaged or missing.
func (s *disks) openEncryption(f *folder) error {
	masters := s.cfg.MasterKeys
	file, err := readKeyFile(f.fs, f.encryptionPath())
	if errors.Is(err, fs.ErrNotExist) {
		used, encrypted, err := f.hasData()
		switch {
		case err != nil:
			return err
		case encrypted:
			return &CorruptError{File: f.encryptionPath(), Reason: "the key file is missing, but the folder has encrypted files: restore the key file from a backup"}
		case len(masters) > 0 && used:
			return f.keyError(ErrNotEncrypted, nil, masters)
		case len(masters) == 0 || s.cfg.ReadOnly:
			return nil
		}
		return s.useKeys(f, keyFile{})
	}
	if err != nil {
		return err
	}
	return s.useKeys(f, file)
}

// useKeys makes f encrypt its files with the data keys in file. If another master key than the
// first wraps them, it first wraps them again.
func (s *disks) useKeys(f *folder, file keyFile) (err error) {
	masters := s.cfg.MasterKeys
	keys, missing := file.unwrap(masters)
	if len(missing) > 0 {
		return f.keyError(ErrMasterKey, missing, masters)
	}
	if !s.cfg.ReadOnly && (len(keys) == 0 || file.staleFor(masters[0])) {
		if keys, err = f.renewKeys(keys, masters[0]); err != nil {
			return err
		}
	}
	f.fs = vfs.NewCrypt(f.fs, keys, f.isEncrypted)
	return nil
}

// CheckEncryption returns the *EncryptionError that Open would return for cfg, or nil, and changes
// nothing. An unreadable key file is not reported: Open reports it, and other folders may be
// usable.
func CheckEncryption(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	cfg.ReadOnly = true
	s := &disks{cfg: cfg.withDefaults()}
	for _, path := range s.cfg.Folders {
		f := &folder{path: filepath.Clean(path), fs: s.cfg.FS, logger: s.cfg.Logger}
		if err := s.openEncryption(f); errors.As(err, new(*EncryptionError)) {
			return err
		}
	}
	return nil
}

func (f *folder) keyError(why error, needs []MasterKeyID, masters []MasterKey) error {
	e := &EncryptionError{Folder: f.path, Needs: needs, Err: why}
	for i := range masters {
		e.Given = append(e.Given, masters[i].ID())
	}
	return e
}

func (f *folder) encryptionPath() string { return filepath.Join(f.path, encryptionFile) }

// isEncrypted reports whether the named file is encrypted in an encrypted folder. Extents and logs
// are. The other files have extent ids, node names and times only.
func (f *folder) isEncrypted(name string) bool {
	dir := filepath.Dir(name)
	return dir == filepath.Join(f.path, blobsDir) || dir == filepath.Join(f.path, logsDir)
}

// hasData reports whether the folder has extents or logs, and whether any of the first four in each
// subfolder is encrypted.
func (f *folder) hasData() (used, encrypted bool, err error) {
	for _, sub := range []string{blobsDir, logsDir} {
		names, err := f.fs.ReadDir(filepath.Join(f.path, sub))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, false, err
		}
		used = used || len(names) > 0
		for _, name := range names[:min(len(names), 4)] {
			encrypted = encrypted || vfs.IsEncrypted(f.fs, filepath.Join(f.path, sub, name))
		}
	}
	return used, encrypted, nil
}

// outdated reports whether the file has a data key from before the last rotation. Such a file is
// not recycled, because the old master key would reveal what is written to it later.
func (f *logFile) outdated() bool {
	old, err := vfs.HasOldKey(f.folder.fs, f.path())
	return err == nil && old
}

// removeOutdated removes outdated spares. Open calls it before the spare workers run.
func (p *sparePool) removeOutdated() {
	if p.s.cfg.ReadOnly {
		return
	}
	p.ready = slices.DeleteFunc(p.ready, func(f *logFile) bool {
		return !f.folder.isRetired() && f.outdated() && f.remove() == nil
	})
}

// renewKeys adds a data key, up to dataKeysMax, wraps all keys with master, and makes the key file
// durable.
func (f *folder) renewKeys(keys []vfs.DataKey, master MasterKey) ([]vfs.DataKey, error) {
	if len(keys) < dataKeysMax {
		keys = append(keys, newDataKey(uint32(len(keys)+1)))
	}
	tmp := f.encryptionPath() + tmpSuffix
	if err := f.fs.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	file, err := f.fs.Create(tmp)
	if err != nil {
		return nil, err
	}
	if _, err = file.WriteAt(wrapKeys(keys, master).encode(), 0); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	if err := f.fs.Rename(tmp, f.encryptionPath()); err != nil {
		return nil, err
	}
	if err := f.fs.SyncDir(f.path); err != nil {
		return nil, err
	}
	f.logger.Info("data keys wrapped", "folder", f.path, "master_key", master.ID(), "data_keys", len(keys))
	return keys, nil
}

// damaged converts a *vfs.DamageError to a *CorruptError and returns other errors unchanged.
func asCorrupt(err error) error {
	var d *vfs.DamageError
	if errors.As(err, &d) {
		return &CorruptError{File: d.File, Offset: d.Offset, Reason: d.Reason}
	}
	return err
}
