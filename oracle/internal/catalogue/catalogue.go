// Package catalogue reads instance types as the KWOK provider does, once per file.
package catalogue

import (
	"context"
	"encoding/json"
	"os"

	"k8s.io/apimachinery/pkg/util/sets"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/kwok/options"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
)

// A Catalogue is a list of instance types and the labels that loading it made well known.
type Catalogue struct {
	Types     []*cloudprovider.InstanceType
	wellKnown sets.Set[string]
}

// Only restricts the list to these names; none given means all.
func (c *Catalogue) Only(names []string) []*cloudprovider.InstanceType {
	if names == nil {
		return c.Types
	}
	wanted := sets.New(names...)
	result := []*cloudprovider.InstanceType{}
	for _, it := range c.Types {
		if wanted.Has(it.Name) {
			result = append(result, it)
		}
	}
	return result
}

// Catalogues keeps what was read. The KWOK provider adds the labels of offerings to Karpenter's global set of
// well-known labels; that set is put back for each catalogue, so that cases do not see each other's labels.
type Catalogues struct {
	base   sets.Set[string]
	loaded map[string]*Catalogue
}

// New remembers the well-known labels as they are before any catalogue is read.
func New() *Catalogues {
	return &Catalogues{base: v1.WellKnownLabels.Clone(), loaded: map[string]*Catalogue{}}
}

// Get reads the file, or the provider's own list for an empty path.
func (c *Catalogues) Get(path string) (*Catalogue, error) {
	found, ok := c.loaded[path]
	if !ok {
		loaded, err := c.load(path)
		if err != nil {
			return nil, err
		}
		found, c.loaded[path] = loaded, loaded
	}
	v1.WellKnownLabels = found.wellKnown
	return found, nil
}

func (c *Catalogues) load(path string) (*Catalogue, error) {
	v1.WellKnownLabels = c.base.Clone()
	ctx := options.ToContext(context.Background(), &options.Options{InstanceTypesFilePath: path})
	instanceTypes, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		return nil, err
	}
	return &Catalogue{Types: instanceTypes, wellKnown: v1.WellKnownLabels}, nil
}

// Choose takes the catalogue of a case: a path, the list itself, or the default.
func (c *Catalogues) Choose(raw json.RawMessage, fallback string) (*Catalogue, error) {
	var path string
	if len(raw) == 0 || string(raw) == "null" {
		return c.Get(fallback)
	}
	if json.Unmarshal(raw, &path) == nil {
		return c.Get(path)
	}
	// The provider reads files only.
	file, err := os.CreateTemp("", "catalogue-*.json")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	if _, err := file.Write(raw); err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	loaded, err := c.load(file.Name())
	if err == nil {
		v1.WellKnownLabels = loaded.wellKnown
	}
	return loaded, err
}
