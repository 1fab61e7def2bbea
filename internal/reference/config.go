// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/ordinal-dev/ordinal/api/config/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/controller/command"
	"github.com/ordinal-dev/ordinal/internal/controller/config"
)

// fieldAnnotation is under which a flag of the controller says which field it sets.
const fieldAnnotation = "ordinal.dev/field"

func configurationPage(s source) (string, error) {
	types, err := s.structs("api/config/v1alpha1/types.go")
	if err != nil {
		return "", err
	}
	defaults, err := yaml.Marshal(config.Default())
	if err != nil {
		return "", err
	}
	p := newPage("Configuration file", "api/config/v1alpha1")
	p.paragraphs("What `ordinal-controller --config FILE` reads. A flag that is given wins over the file, and a field that is left out has its default. "+
		"`--validate-config` checks a file, and names the line and the field of each mistake.",
		"A file with what holds without one:", "```yaml\n"+string(defaults)+"```")
	c := configuration{types: types, flags: flagsByField()}
	if err := c.describe(p, structField{name: "Fields", kind: v1alpha1.Kind}, ""); err != nil {
		return "", err
	}
	for field := range c.flags {
		return "", fmt.Errorf("a flag sets %s, which is no field", field)
	}
	return p.String(), nil
}

// flagsByField are the controller's flags by the field of the configuration that they set.
func flagsByField() map[string]*pflag.Flag {
	flags := map[string]*pflag.Flag{}
	command.New().Flags().VisitAll(func(f *pflag.Flag) {
		for _, field := range f.Annotations[fieldAnnotation] {
			flags[field] = f
		}
	})
	return flags
}

// configuration is what the page is made from: types, and the flags whose fields were not described yet.
type configuration struct {
	types map[string][]structField
	flags map[string]*pflag.Flag
}

// describe adds a table of the fields of a type, and one for each type within it.
func (c configuration) describe(p *page, of structField, path string) error {
	var rows [][]string
	var within []structField
	for _, field := range c.types[of.kind] {
		if c.types[field.kind] != nil {
			within = append(within, field)
			continue
		}
		full := path + field.name
		flag := c.flags[full]
		if flag == nil {
			return fmt.Errorf("no flag sets %s", full)
		}
		delete(c.flags, full)
		rows = append(rows, []string{code(full), code("--" + flag.Name), code(shownDefault(flag)), field.doc})
	}
	p.paragraphs("## "+of.name, of.doc)
	p.table([]string{"field", "flag", "default", ""}, rows)
	for _, field := range within {
		if err := c.describe(p, field, path+field.name+"."); err != nil {
			return err
		}
	}
	return nil
}

// structField is a field of a type.
type structField struct {
	// name is that in JSON.
	name, kind, doc string
}

// structs are the fields of the types of a file that have names in JSON.
func (s source) structs(file string) (map[string][]structField, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(string(s), file), nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	types := map[string][]structField{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		structure, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		for _, f := range structure.Fields.List {
			if f.Tag == nil || len(f.Names) != 1 {
				continue
			}
			tag, errTag := strconv.Unquote(f.Tag.Value)
			if errTag != nil {
				err = errTag
			}
			name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
			kind := ""
			if ident, ok := f.Type.(*ast.Ident); ok {
				kind = ident.Name
			}
			types[spec.Name.Name] = append(types[spec.Name.Name], structField{name, kind, sentence(name, f.Doc.Text())})
		}
		return true
	})
	return types, err
}
