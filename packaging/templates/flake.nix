{
  description = "$summary";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      sources = {
$sources
      };
      forEach = nixpkgs.lib.genAttrs (builtins.attrNames sources);
    in
    {
      packages = forEach (system:
        let pkgs = nixpkgs.legacyPackages.$${system};
        in {
          default = pkgs.stdenvNoCC.mkDerivation {
            pname = "longshore";
            version = "$version";
            src = pkgs.fetchurl sources.$${system};
            installPhase = "install -Dm755 longshore $$out/bin/longshore";
            meta.mainProgram = "longshore";
          };
        });
    };
}
