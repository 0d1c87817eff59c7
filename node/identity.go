package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
)

// identityFile is the name of the file in each data folder that tells whose the
// folder is. Without it a wrong list of folders would look like a new node, and
// the blobs of the old one like leftovers.
const identityFile = "identity"

// identityFormat is the version of the identity file.
const identityFormat = 1

// identity is what the file says. All folders of a node say the same but for
// Folder.
type identity struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Folder  string `json:"folder"` // this folder's id
	Raft    string `json:"raft"`   // id of the folder that holds raft/
	// Founding is true until the cluster's id is in the namespace. Such a node has
	// not served yet, so there is nothing to lose.
	Founding bool        `json:"founding,omitempty"`
	Folders  []folderRef `json:"folders"`
}

// folderRef is one folder of a node.
type folderRef struct {
	ID   string `json:"id"`
	Path string `json:"path"` // when the node last started, for people
}

// dataFolder is one folder that the node was given.
type dataFolder struct {
	path  string
	has   *identity // nil if there is no identity file
	blobs bool      // there are files in blobs/
	raft  bool      // there is a Raft log
}

// folders is the data folders of a node, inspected and found to belong together.
type folders struct {
	identity // Folder is empty
	given    []dataFolder
}

// inspectFolders looks at the data folders, in any order, and changes nothing. The
// error says which folder does not belong to the others, or is missing.
func inspectFolders(dataDirs []string) (*folders, error) {
	all := &folders{}
	for _, path := range dataDirs {
		d, err := inspectFolder(path)
		if err != nil {
			return nil, fmt.Errorf("data folder %s: %w", path, err)
		}
		all.given = append(all.given, d)
	}
	if err := all.checkDistinct(); err != nil {
		return nil, err
	}
	if err := all.checkOwner(); err != nil {
		return nil, err
	}
	if all.Founding {
		return all, nil
	}
	return all, all.checkComplete()
}

func inspectFolder(path string) (dataFolder, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return dataFolder{}, err
	}
	d := dataFolder{path: abs}
	if _, err := os.Stat(filepath.Join(abs, "raft", "raft.db")); err == nil {
		d.raft = true
	} else if !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	if d.blobs, err = holdsFiles(filepath.Join(abs, "blobs")); err != nil {
		return d, err
	}
	b, err := os.ReadFile(filepath.Join(abs, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return d, err
	}
	d.has = &identity{}
	if err := json.Unmarshal(b, d.has); err != nil {
		return d, fmt.Errorf("read %s: %w", identityFile, err)
	}
	i := d.has
	if i.Format != identityFormat {
		return d, fmt.Errorf("%s has format %d, this program knows %d", identityFile, i.Format, identityFormat)
	}
	if i.Cluster == "" || i.Node == "" || i.Folder == "" || i.Raft == "" {
		return d, fmt.Errorf("%s names no cluster, node or folder", identityFile)
	}
	return d, nil
}

// holdsFiles tells whether there is a file with something in it below dir.
func holdsFiles(dir string) (bool, error) {
	found := false
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Size() > 0 {
			found = true
			return filepath.SkipAll
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return found, err
}

// checkDistinct refuses a folder that was given twice.
func (f *folders) checkDistinct() error {
	for i, a := range f.given {
		infoA, errA := os.Stat(a.path)
		for _, b := range f.given[:i] {
			infoB, errB := os.Stat(b.path)
			same := a.path == b.path || errA == nil && errB == nil && os.SameFile(infoA, infoB)
			if same || a.has != nil && b.has != nil && a.has.Folder == b.has.Folder {
				return fmt.Errorf("data folders %s and %s are one folder, or one is a copy: give it once", b.path, a.path)
			}
		}
	}
	return nil
}

// checkOwner finds whose the folders are, and refuses those of others.
func (f *folders) checkOwner() error {
	var owner *dataFolder
	founded := false
	for i := range f.given {
		d := &f.given[i]
		switch {
		case d.has == nil && (d.blobs || d.raft):
			return fmt.Errorf("data folder %s holds data but no file %q, so it is not known whose it is: "+
				"give the right folder, or put the file back", d.path, identityFile)
		case d.has == nil:
			continue
		case owner != nil && (owner.has.Cluster != d.has.Cluster || owner.has.Node != d.has.Node):
			return fmt.Errorf("data folder %s belongs to node %s of cluster %s, and %s to node %s of cluster %s: "+
				"give the folders of one node only", owner.path, owner.has.Node, owner.has.Cluster, d.path, d.has.Node, d.has.Cluster)
		}
		founded = founded || !d.has.Founding
		if owner == nil || len(d.has.Folders) > len(owner.has.Folders) {
			owner = d
		}
	}
	if founded {
		f.identity = *owner.has
		f.Folder, f.Founding = "", false
		return nil
	}
	return f.found(owner)
}

// found makes the identity of a node that has not served yet. A start that was
// broken off leaves one, which is taken up: its Raft log has its name.
func (f *folders) found(begun *dataFolder) error {
	for _, d := range f.given {
		if d.blobs {
			return fmt.Errorf("data folder %s holds blobs but the lock service's log was never finished: give all folders of the node", d.path)
		}
	}
	f.identity = identity{Format: identityFormat, Cluster: randomHex(8), Node: "n" + randomHex(8), Founding: true}
	if begun != nil {
		f.Cluster, f.Node = begun.has.Cluster, begun.has.Node
	}
	for i := range f.given {
		d := &f.given[i]
		if d.has == nil || d.has.Folder == "" {
			d.has = &identity{Folder: randomHex(8)}
		}
		if f.Raft == "" || d.raft {
			f.Raft = d.has.Folder
		}
	}
	return nil
}

// checkComplete refuses to go on without a folder that the node has, or without
// its Raft log.
func (f *folders) checkComplete() error {
	var missing []string
	for _, d := range f.given {
		if d.has == nil {
			continue
		}
		for _, ref := range d.has.Folders { // one may have been added when a start was broken off
			if !slices.Contains(missing, ref.Path) && f.byID(ref.ID) == nil {
				missing = append(missing, ref.Path)
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("node %s of cluster %s also has the data folder %s, which was not given or is empty now: "+
			"give all its folders, and see that their disks are mounted", f.Node, f.Cluster, strings.Join(missing, " and "))
	}
	holder := f.byID(f.Raft)
	if holder == nil {
		return fmt.Errorf("no data folder of node %s has the id %s, which is that of the lock service's log", f.Node, f.Raft)
	}
	if !holder.raft {
		return fmt.Errorf("the lock service's log is missing from data folder %s: without it nothing tells what the blobs of node %s "+
			"of cluster %s are; put %s back from a copy, or give empty folders to begin anew",
			holder.path, f.Node, f.Cluster, filepath.Join(holder.path, "raft"))
	}
	for _, d := range f.given {
		if d.raft && d.has != holder.has {
			return fmt.Errorf("data folder %s holds a lock service's log, but that of node %s is in %s", d.path, f.Node, holder.path)
		}
	}
	return nil
}

func (f *folders) byID(id string) *dataFolder {
	for i := range f.given {
		if d := &f.given[i]; d.has != nil && d.has.Folder == id {
			return d
		}
	}
	return nil
}

// raftDir returns the folder of the Raft log.
func (f *folders) raftDir() string { return filepath.Join(f.byID(f.Raft).path, "raft") }

// save writes what has changed of the identity into the folders. The files of new
// folders come first: one that others name and that does not know it would be
// taken for missing.
func (f *folders) save() error {
	f.Folders = nil
	var order []*dataFolder
	for i := range f.given {
		d := &f.given[i]
		if d.has == nil {
			d.has = &identity{Folder: randomHex(8)}
		}
		if d.has.Format == 0 {
			order = slices.Insert(order, 0, d)
		} else {
			order = append(order, d)
		}
		f.Folders = append(f.Folders, folderRef{ID: d.has.Folder, Path: d.path})
	}
	slices.SortFunc(f.Folders, func(a, b folderRef) int { return strings.Compare(a.ID, b.ID) })
	for _, d := range order {
		if err := d.save(f.identity); err != nil {
			return fmt.Errorf("data folder %s: write %s: %w", d.path, identityFile, err)
		}
	}
	return nil
}

func (d *dataFolder) save(i identity) error {
	i.Folder = d.has.Folder
	before, err := json.MarshalIndent(d.has, "", "  ")
	if err != nil {
		return err
	}
	after, err := json.MarshalIndent(&i, "", "  ")
	if err != nil {
		return err
	}
	if string(before) == string(after) {
		return nil
	}
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return err
	}
	if err := renameio.WriteFile(filepath.Join(d.path, identityFile), append(after, '\n'), 0o600); err != nil {
		return err
	}
	d.has = &i
	return nil
}
