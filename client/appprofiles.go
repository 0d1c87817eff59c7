package client

import (
	"context"

	"github.com/steledb/stele/client/api"
)

// AppProfile describes a program that uses the cluster through Cloud Bigtable's API, and how its requests are routed.
type AppProfile = api.AppProfile

// AppProfiles administers the app profiles of the cluster. All users may list them; the other methods require the right to administer the cluster.
// Other nodes than the one that made a change apply it to requests within seconds.
type AppProfiles struct{ calls *caller }

// AppProfiles returns the administration of app profiles.
func (c *Client) AppProfiles() AppProfiles { return AppProfiles{&c.calls} }

// List returns all profiles by id. Errors: those of a node that cannot be reached; ctx's.
func (a AppProfiles) List(ctx context.Context) ([]AppProfile, error) {
	var all api.AppProfiles
	err := a.calls.query(ctx, api.MethodListAppProfiles, nil, all.Decode)
	return all.Profiles, err
}

// Create creates a profile, and returns it with its etag. Errors: api.ErrAppProfileExists, ErrBadName, *table.LimitError, a bad request, ErrPermission,
// *AmbiguousError, and those of List.
func (a AppProfiles) Create(ctx context.Context, p *AppProfile) (*AppProfile, error) {
	return a.save(ctx, api.MethodCreateAppProfile, p)
}

// Update replaces all fields of a profile, if it has the etag of p, unless that is empty. Errors: api.ErrNoAppProfile, api.ErrAppProfileChanged, and those
// of Create.
func (a AppProfiles) Update(ctx context.Context, p *AppProfile) (*AppProfile, error) {
	return a.save(ctx, api.MethodUpdateAppProfile, p)
}

func (a AppProfiles) save(ctx context.Context, method string, p *AppProfile) (*AppProfile, error) {
	saved, req := &AppProfile{}, api.AppProfileRequest{Profile: *p}
	err := a.calls.do(ctx, &call{method: method, change: true, encode: req.Append, decode: saved.Decode})
	if err != nil {
		return nil, err
	}
	return saved, nil
}

// Delete deletes a profile. Requests that name it fail then. Errors: api.ErrNoAppProfile, a bad request for the default one, ErrPermission,
// *AmbiguousError, and those of List.
func (a AppProfiles) Delete(ctx context.Context, id string) error {
	req := api.NamesRequest{Names: []string{id}}
	return a.calls.do(ctx, &call{method: api.MethodDeleteAppProfile, change: true, encode: req.Append})
}
