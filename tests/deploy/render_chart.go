// Renders a Helm chart with the parts that Helm is made of: Go's text/template and sprig, both from Debian's packages. No
// helm binary is needed, and none is in the package registries.
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go run render_chart.go CHART RELEASE NAMESPACE [VALUES.yaml ...]
//
// Prints all manifests. It has what this chart uses of Helm: include, toYaml, Files.Get, required, the values merged key by key. A
// template that asks for anything else fails, as does a value that is not there.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"github.com/ghodss/yaml"
)

type values = map[string]interface{}

// files is what a template sees as .Files.
type files struct{ chart string }

func (f files) Get(name string) string {
	content, err := os.ReadFile(filepath.Join(f.chart, name))
	check(err)
	return string(content)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "render_chart:", err)
		os.Exit(1)
	}
}

func load(path string) values {
	content, err := os.ReadFile(path)
	check(err)
	loaded := values{}
	check(yaml.Unmarshal(content, &loaded))
	return loaded
}

// merge lets given values win over defaults, mapping by mapping; null takes a default away, as in Helm.
func merge(defaults, given values) {
	for key, value := range given {
		inner, isMap := value.(values)
		known, wasMap := defaults[key].(values)
		switch {
		case value == nil:
			delete(defaults, key)
		case isMap && wasMap:
			merge(known, inner)
		default:
			defaults[key] = value
		}
	}
}

func main() {
	chart, release, namespace := os.Args[1], os.Args[2], os.Args[3]
	all := load(filepath.Join(chart, "values.yaml"))
	for _, path := range os.Args[4:] {
		merge(all, load(path))
	}
	meta := load(filepath.Join(chart, "Chart.yaml"))
	about := values{}
	for key, value := range meta {
		about[strings.ToUpper(key[:1])+key[1:]] = value
	}
	root := values{
		"Values":  all,
		"Chart":   about,
		"Files":   files{chart},
		"Release": values{"Name": release, "Namespace": namespace, "Service": "Helm"},
	}

	set := template.New("chart").Option("missingkey=error")
	functions := sprig.TxtFuncMap()
	delete(functions, "env")
	delete(functions, "expandenv")
	functions["include"] = func(name string, data interface{}) (string, error) {
		var out bytes.Buffer
		err := set.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	functions["toYaml"] = func(data interface{}) (string, error) {
		text, err := yaml.Marshal(data)
		return strings.TrimSuffix(string(text), "\n"), err
	}
	set.Funcs(functions)

	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	check(err)
	sort.Strings(paths)
	for _, path := range paths {
		content, err := os.ReadFile(path)
		check(err)
		_, err = set.New(filepath.Base(path)).Parse(string(content))
		check(err)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		if strings.HasPrefix(name, "_") {
			continue
		}
		var out bytes.Buffer
		check(set.ExecuteTemplate(&out, name, root))
		if strings.TrimSpace(out.String()) == "" {
			continue
		}
		if name == "NOTES.txt" {
			fmt.Fprint(os.Stderr, out.String())
			continue
		}
		fmt.Printf("---\n# Source: %s\n%s\n", name, out.String())
	}
}
