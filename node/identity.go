package node

import "github.com/steledb/stele/node/identity"

// folders is the data folders of a node that founds its cluster alone if it is new.
type folders struct{ *identity.Folders }

// inspectFolders looks at the data folders, in any order, and changes nothing. The
// error says which folder does not belong to the others, or is missing.
func inspectFolders(dataDirs []string) (*folders, error) {
	f, err := identity.Inspect(dataDirs)
	if err != nil {
		return nil, err
	}
	f.Founding = f.Founding || f.Fresh()
	return &folders{f}, nil
}

// raftDir returns the folder of the Raft log.
func (f *folders) raftDir() string { return f.RaftDir() }

// save writes what has changed of the identity into the folders.
func (f *folders) save() error {
	if f.Fresh() {
		return f.Found(randomHex(8))
	}
	return f.Write()
}
